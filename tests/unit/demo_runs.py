"""Runs of the demo's trainer for tests: very small ones, in this process, their output read as a Megatron log."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from waiting import LIMIT

from backends.demo.arguments import read_arguments
from backends.demo.collective import Alone, Collective, Vector
from backends.demo.trainer import Trainer
from backends.megatron.event_json import unroll
from backends.megatron.parser import Parser

SMALL = [
    "--num-layers",
    "1",
    "--hidden-size",
    "16",
    "--num-attention-heads",
    "2",
    "--seq-length",
    "16",
    "--vocab-size",
    "300",
    "--global-batch-size",
    "4",
    "--micro-batch-size",
    "2",
    "--lr",
    "1e-2",
    "--init-method-std",
    "0.1",
    "--split",
    "80,10,10",
    "--train-iters",
    "6",
    "--log-interval",
    "1",
    "--eval-interval",
    "3",
    "--eval-iters",
    "2",
]
WORDS = ("the cat sat on the mat", "a dog ran over the hill", "rain fell on the roof", "ships sail at dawn")


def write_corpus(path: Path, words: Sequence[str] = WORDS) -> Path:
    path.write_text(
        "".join(json.dumps({"text": f"{word} {i}. " * 8}) + "\n" for i in range(10) for word in words)
    )
    return path


def arguments(*words: str | Path, ranks: int = 1) -> argparse.Namespace:
    return read_arguments([*SMALL, *map(str, words)], ranks)


def printed(args: argparse.Namespace, ranks: Collective | None = None) -> str:
    """The output of a whole run."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        Trainer(args, ranks or Alone(), time.monotonic()).run()
    return out.getvalue()


def events(text: str) -> list[dict[str, Any]]:
    log = Parser()
    return [row for event in [*log.feed(text.encode()), *log.finish()] for row in unroll(event)]


def run(*words: str | Path) -> list[dict[str, Any]]:
    return events(printed(arguments(*words)))


def of_kind(rows: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["event"] == kind]


def losses(rows: list[dict[str, Any]]) -> list[float]:
    return [row["values"]["lm loss"] for row in of_kind(rows, "iteration")]


class Threads:
    """Ranks that are threads of one process: what MPI does, with a barrier and a table."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, table: dict[int, Any]) -> None:
        self.rank, self.size = rank, size
        self._barrier, self._table = barrier, table

    def sum(self, values: Vector) -> Vector:
        return np.sum(self._exchange(values), axis=0)

    def gather(self, value: float) -> list[float]:
        return self._exchange(value)

    def abort(self, status: int) -> None:
        self._barrier.abort()

    def _exchange(self, value: Any) -> list[Any]:
        self._table[self.rank] = value
        self._barrier.wait(LIMIT)
        found = [self._table[rank] for rank in range(self.size)]
        self._barrier.wait(LIMIT)
        return found


def run_ranks(size: int, *words: str | Path) -> list[dict[str, Any]]:
    """The events of `size` ranks, their lines in the order in which they came."""
    barrier, table = threading.Barrier(size), dict[int, Any]()
    args = [arguments(*words, ranks=size) for _ in range(size)]
    trainers = [Trainer(args[rank], Threads(rank, size, barrier, table), 0.0) for rank in range(size)]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        threads = [threading.Thread(target=trainer.run) for trainer in trainers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    return events(out.getvalue())
