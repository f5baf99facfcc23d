"""Bytes and CPU of the monitor: on a finished log, on a run whose log rests (its host is read meanwhile), and on one that
grows at 1 Hz beside eight (invented) busy GPUs.

python tests/bench/bench_wire.py [SECONDS]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from terminal import MDK_TUI, TOP, Terminal, table
from training_log import NOISE, iteration_line, write_log

from backends.files import write_json
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.processes import find_process, this_machine
from backends.runs.state import Phase, RunState

LAST = 4310
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


def scenes(workspace: str) -> list[tuple[str, RunFolder, tuple[str, ...], dict[str, str], bool]]:
    """(name, run, arguments, environment, whether the log grows)."""
    over, alive = run_folder(Path(workspace), "finished"), run_folder(Path(workspace), "running")
    return [
        ("finished log", over, ("watch", str(over.log)), {}, False),
        ("finished run", over, ("attach", over.name), {}, False),
        ("run at rest", alive, ("attach", alive.name), {}, False),
        ("live, 8 GPUs", alive, ("attach", alive.name), GPUS, True),
    ]


def main(seconds: float) -> None:
    rows: list[tuple[str, str, str]] = []
    growth = [f"{iteration_line(LAST + n)}\n{NOISE}" for n in range(1, 601)]
    for columns, height in ((200, 50), (120, 36), (80, 24)):
        with tempfile.TemporaryDirectory() as workspace:
            for name, run, arguments, environment, grows in scenes(workspace):
                argv = (*MDK_TUI, "-w", workspace, *arguments)
                with Terminal(argv, columns=columns, rows=height, environment=environment) as terminal:
                    terminal.wait_for(f"{LAST:,}")
                    time.sleep(3)  # the start is over; a live screen is never quiet
                    rate, cpu = measure(terminal, seconds, growth if grows else [], run.log)
                where = f"{columns}×{height} {name}"
                rows += [
                    (where, f"{rate:,.0f} B/s", "≤ 15,000" if grows else "0"),
                    (where, f"{cpu:.1f} % CPU", "≤ 5 %" if grows else "≤ 0.5 %"),
                ]
    table(f"On the wire, over {seconds:.0f} s each", rows)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20)
