"""Bytes and CPU: the monitor on a log that rests, and on one that grows at 1 Hz beside eight (invented) busy GPUs.

python tests/bench/bench_wire.py [SECONDS]
"""

from __future__ import annotations

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


def run_folder(workspace: Path) -> RunFolder:
    """A run whose job we play: the monitor on a run shows the GPUs, that on somebody's log does not."""
    folder = create_run_folder(workspace / "outputs" / "runs", datetime.now())
    write_json(folder.plan_file, RunPlan("train", "megatron", title="gpt3-7b").as_json())
    write_log(folder.log, LAST)
    return folder


def main(seconds: float) -> None:
    rows: list[tuple[str, str, str]] = []
    growth = [f"{iteration_line(LAST + n)}\n{NOISE}" for n in range(1, 601)]
    for columns, height in ((120, 36), (200, 50), (80, 24)):
        for name, environment, lines, bytes_limit, cpu_limit in (
            ("at rest, no GPU", {}, [], "0", "≤ 0.5 %"),
            ("live, 8 GPUs", GPUS, growth, "≤ 15,000", "≤ 5 %"),
        ):
            with tempfile.TemporaryDirectory() as workspace:
                run = run_folder(Path(workspace))
                attach = (*MDK_TUI, "-w", workspace, "attach", run.name)
                with Terminal(attach, columns=columns, rows=height, environment=environment) as terminal:
                    terminal.wait_for(f"{LAST:,}")
                    time.sleep(3)  # the start is over; a live screen is never quiet
                    rate, cpu = measure(terminal, seconds, lines, run.log)
            where = f"{columns}×{height} {name}"
            rows += [
                (where, f"{rate:,.0f} B/s", bytes_limit),
                (where, f"{cpu:.1f} % CPU", cpu_limit),
            ]
    table(f"On the wire, over {seconds:.0f} s each", rows)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20)
