"""Bytes and CPU of the monitor on a finished log, a finished run, a run whose log rests (the host is still read), and a run
whose log grows at 1 Hz beside eight (invented) busy GPUs.

python tests/bench/bench_wire.py [SECONDS]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from itertools import repeat
from pathlib import Path

from terminal import MDK_TUI, TOP, Terminal, table
from training_log import NOISE, iteration_line, write_log

from backends.files import write_json
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.processes import find_process, this_machine
from backends.runs.state import Phase, RunState

LAST = 4310
SIZES = ((200, 50), (120, 36), (80, 24))  # columns, rows
GPUS = {"PYTHONPATH": f"{TOP / 'tests/bench/eight_gpus'}:{TOP}"}


def measure(terminal: Terminal, seconds: float, each_second: list[str], log: Path) -> tuple[float, float]:
    """(bytes, CPU share in percent) a second, while one of `each_second` is appended to `log` every second."""
    size, cpu, started = terminal.size, terminal.cpu(), time.monotonic()
    with log.open("a") as file:
        for number in range(round(seconds)):
            if each_second:
                file.write(each_second[number % len(each_second)] + "\n")
                file.flush()
            time.sleep(max(started + number + 1 - time.monotonic(), 0))
    elapsed = time.monotonic() - started
    return (terminal.size - size) / elapsed, 100 * (terminal.cpu() - cpu) / elapsed


def run_folder(workspace: Path, phase: Phase) -> RunFolder:
    """A run of this machine, whose job we play."""
    folder = create_run_folder(workspace / "outputs" / "runs", datetime.now())
    write_json(folder.plan_file, RunPlan("train", "megatron", title="gpt3-7b").as_json())
    me = find_process(os.getpid())
    state = RunState(phase, supervisor=me, job=me, leader=me, machine=this_machine(), heartbeat=time.time())
    folder.write_state(state)
    write_log(folder.log, LAST)
    return folder


@dataclass(frozen=True)
class Scene:
    """What is measured: `run` seen through `arguments`; `grows`: its log gets two lines a second."""

    name: str
    run: RunFolder
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    grows: bool = False


def scenes(workspace: str) -> list[Scene]:
    over, alive = run_folder(Path(workspace), "finished"), run_folder(Path(workspace), "running")
    return [
        Scene("finished log", over, ("watch", str(over.log))),
        Scene("finished run", over, ("attach", over.name)),
        Scene("run at rest", alive, ("attach", alive.name)),
        Scene("live, 8 GPUs", alive, ("attach", alive.name), GPUS, grows=True),
    ]


def measured(
    scene: Scene, workspace: str, size: tuple[int, int], seconds: float
) -> list[tuple[str, str, str]]:
    """Rows of the table: `scene` in a terminal of `size` (columns, rows)."""
    growth = [f"{iteration_line(LAST + n)}\n{NOISE}" for n in range(1, 601)] if scene.grows else []
    argv = (*MDK_TUI, "-w", workspace, *scene.arguments)
    with Terminal(argv, columns=size[0], rows=size[1], environment=scene.environment) as terminal:
        terminal.wait_for(f"{LAST:,}", timeout=60)
        if not scene.grows:
            terminal.quiet(3)
        time.sleep(3)  # the start is over; a live screen is never quiet
        rate, cpu = measure(terminal, seconds, growth, scene.run.log)
    where = f"{size[0]}×{size[1]} {scene.name}"
    return [
        (where, f"{rate:,.0f} B/s", "≤ 15,000" if scene.grows else "0"),
        (where, f"{cpu:.1f} % CPU", "≤ 5 %" if scene.grows else "≤ 0.5 %"),
    ]


def main(seconds: float) -> None:
    """The sizes are measured at the same time, each with a workspace of its own; the scenes one after the other."""
    rows: list[tuple[str, str, str]] = []
    with ExitStack() as stack, ThreadPoolExecutor(len(SIZES)) as pool:
        places = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in SIZES]
        for at in zip(*map(scenes, places), strict=True):
            found = pool.map(measured, at, places, SIZES, repeat(seconds))
            rows += [row for rows_of_size in found for row in rows_of_size]
    table(f"On the wire, over {seconds:.0f} s each", sorted(rows, key=lambda row: row[0].partition(" ")[0]))


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 10)
