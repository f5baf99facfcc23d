"""First paint of `mdk-tui watch LOG`, `attach` and `mdk-tui` beside that of a bare Textual app: interleaved in one run, medians.

python tests/bench/bench_first_paint.py [RUNS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path

from terminal import BARE_APP, MDK_TUI, Terminal, table
from training_log import write_log

from backends.files import write_json
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.state import RunState


def seconds_to(argv: tuple[str, ...], *marks: str) -> list[float]:
    """Seconds from the start of `argv` until each of `marks` is on the screen."""
    with Terminal(argv) as terminal:
        return [terminal.wait_for(mark) - terminal.started for mark in marks]


def run_folder(workspace: Path) -> RunFolder:
    """A finished run with the log."""
    folder = create_run_folder(workspace / "outputs" / "runs", datetime.now())
    write_json(folder.plan_file, RunPlan("train", "megatron", title="gpt3-7b").as_json())
    folder.write_state(RunState("finished"))
    write_log(folder.log, 4310)
    return folder


def main(runs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = run_folder(Path(folder))
        programs = {
            "bare Textual app": ((sys.executable, "-c", BARE_APP), ("painted",)),
            "mdk-tui watch": ((*MDK_TUI, "watch", str(run.log)), ("output.log", "4,310")),
            "mdk-tui attach": ((*MDK_TUI, "-w", folder, "attach"), (run.name, "4,310")),
            "mdk-tui": ((*MDK_TUI, "-w", folder), ("Home",)),
        }
        taken: dict[str, list[list[float]]] = {name: [] for name in programs}
        for number in range(runs + 1):
            for name, (argv, marks) in programs.items():
                found = seconds_to(argv, *marks)
                if number:  # the first round compiles what is not compiled yet
                    taken[name].append(found)
    floor = statistics.median(first for first, *_ in taken["bare Textual app"])
    rows: list[tuple[str, str, str]] = []
    for name, found in taken.items():
        first = statistics.median(seconds[0] for seconds in found)
        rows.append((name, f"{first * 1000:.0f} ms", ""))
        if first != floor:
            rows.append(("  beside the bare one", f"{first / floor:.2f}", "≤ 2"))
        if len(found[0]) > 1:
            newest = statistics.median(seconds[1] for seconds in found)
            rows.append(("  newest iteration on screen", f"{newest * 1000:.0f} ms", ""))
    table(f"First paint, median of {runs} interleaved runs", rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
