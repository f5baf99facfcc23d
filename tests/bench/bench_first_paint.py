"""First paint of `mdk-tui watch LOG` beside that of a bare Textual app: interleaved in one run, medians.

python tests/bench/bench_first_paint.py [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from terminal import BARE_APP, MDK_TUI, Terminal, table
from training_log import write_log


def seconds_to(argv: tuple[str, ...], *marks: str) -> list[float]:
    """Seconds from the start of `argv` until each of `marks` is on the screen."""
    with Terminal(argv) as terminal:
        return [terminal.wait_for(mark) - terminal.started for mark in marks]


def main(runs: int) -> None:
    bare: list[float] = []
    paint: list[float] = []
    newest: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        write_log(log, 4310)
        watch = (*MDK_TUI, "watch", str(log))
        seconds_to(watch, "4,310")  # compiles what is not compiled yet
        for _ in range(runs):
            bare += seconds_to((sys.executable, "-c", BARE_APP), "painted")
            first, value = seconds_to(watch, "train.log", "4,310")
            paint.append(first)
            newest.append(value)
    floor, ours = statistics.median(bare), statistics.median(paint)
    table(
        f"First paint, median of {runs} interleaved runs",
        [
            ("bare Textual app", f"{floor * 1000:.0f} ms", ""),
            ("mdk-tui watch", f"{ours * 1000:.0f} ms", ""),
            ("ratio", f"{ours / floor:.2f}", "≤ 2"),
            ("newest iteration on screen", f"{statistics.median(newest) * 1000:.0f} ms", ""),
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
