"""Lines as core_r0.8.0 prints them, for logs of any length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

START = datetime(2026, 11, 30, 9, 0, 0)
NOISE = "[INFO     | DotProductAttention]: Running with FusedAttention backend (sub-backend 1)"


def iteration_line(iteration: int, total: int = 1_000_000) -> str:
    """One iteration, without the newline. Loss falls, and wobbles so that every line differs."""
    loss = 2.0 + 8.6 / (1 + iteration / 400) + 0.05 * math.sin(iteration * 1.7)
    elapsed = 12_100 + 40 * math.sin(iteration * 0.9)
    time = (START + timedelta(seconds=12 * iteration)).strftime("%Y-%m-%d %H:%M:%S")
    return (
        f" [{time}] iteration {iteration:8d}/{total:8d} | consumed samples: {iteration * 1024:12d} |"
        f" elapsed time per iteration (ms): {elapsed:.1f} | throughput per GPU (TFLOP/s/GPU): {1.06e7 / elapsed:.1f} |"
        f" learning rate: {1e-4 * min(iteration / 2000, 1):.6E} | global batch size:  1024 | lm loss: {loss:.6E} |"
        f" loss scale: 1.0 | grad norm: {1 + loss / 4:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def lines(first: int, last: int) -> Iterator[str]:
    return (iteration_line(iteration) for iteration in range(first, last + 1))


def write_log(path: Path, iterations: int) -> None:
    """A finished part of a log: its first lines and `iterations` iterations."""
    with path.open("w") as file:
        file.write(
            "using world size: 8, data-parallel size: 8, context-parallel size: 1 tensor-model-parallel size: 1, pipeline-model-parallel size: 1 \n"
        )
        file.write("[before the start of training step] datetime: 2026-11-30 09:00:00 \n")
        file.writelines(line + "\n" for line in lines(1, iterations))
