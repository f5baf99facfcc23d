"""Bytes and CPU: the monitor on a log that rests, and on one that grows at 1 Hz beside eight (invented) busy GPUs.

python tests/bench/bench_wire.py [SECONDS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from terminal import MDK_TUI, TOP, Terminal, table
from training_log import NOISE, iteration_line, write_log

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


def main(seconds: float) -> None:
    rows: list[tuple[str, str, str]] = []
    growth = [f"{iteration_line(4310 + n)}\n{NOISE}" for n in range(1, 601)]
    for columns, height in ((120, 36), (200, 50), (80, 24)):
        for name, environment, lines, bytes_limit, cpu_limit in (
            ("at rest, no GPU", {}, [], "0", "≤ 0.5 %"),
            ("live, 8 GPUs", GPUS, growth, "≤ 15,000", "≤ 5 %"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                log = Path(folder) / "train.log"
                write_log(log, 4310)
                with Terminal(
                    (*MDK_TUI, "watch", str(log)), columns=columns, rows=height, environment=environment
                ) as terminal:
                    terminal.wait_for("4,310")
                    time.sleep(3)  # the start is over; a live screen is never quiet
                    rate, cpu = measure(terminal, seconds, lines, log)
            where = f"{columns}×{height} {name}"
            rows += [
                (where, f"{rate:,.0f} B/s", bytes_limit),
                (where, f"{cpu:.1f} % CPU", cpu_limit),
            ]
    table(f"On the wire, over {seconds:.0f} s each", rows)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 20)
