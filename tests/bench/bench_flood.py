"""A flood of 20,000 lines/s: how long a key takes to appear, how long each iteration is not yet on screen, what is lost.

    python tests/bench/bench_flood.py [SECONDS]

A process of its own writes the log; every 100th line is an iteration, the rest the same warning with a number.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from terminal import MDK_TUI, Terminal, table
from training_log import NOISE, iteration_line, write_log

RATE = 20_000  # lines/s
STEP = 0.02  # s between two bursts of lines
EVERY = 100  # lines from one iteration to the next
FIRST = 4311


def flood(path: Path, seconds: float) -> None:
    """Append the flood; print (as JSON) when each iteration was written, on the monotonic clock."""
    written: list[tuple[int, float]] = []
    started, line = time.monotonic(), 0
    with path.open("a") as file:
        for burst in range(round(seconds / STEP)):
            fresh: list[int] = []
            for _ in range(round(RATE * STEP)):
                line += 1
                if line % EVERY:
                    file.write(f"{NOISE} {line}\n")
                else:
                    fresh.append(FIRST + len(written) + len(fresh))
                    file.write(iteration_line(fresh[-1]) + "\n")
            file.flush()
            now = time.monotonic()
            written += [(iteration, now) for iteration in fresh]
            time.sleep(max(started + (burst + 1) * STEP - time.monotonic(), 0))
    print(json.dumps({"lines": line, "seconds": time.monotonic() - started, "written": written}))


def echoes(terminal: Terminal, seconds: float) -> list[float]:
    """Seconds from each key press in the search field to its letter on the screen."""
    terminal.send("/")
    time.sleep(0.5)
    taken: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        letter = "ZQVY"[len(taken) % 4]  # neither in the log nor in escape codes
        size, pressed = terminal.size, time.monotonic()
        terminal.send(letter)
        taken.append(terminal.wait_for(letter, after=size, timeout=10) - pressed)
        time.sleep(0.1)
    return taken


def latencies(terminal: Terminal, start: int, written: dict[int, float]) -> list[float]:
    """For every iteration: seconds from its writing until the first line of the screen shows it, or a newer one."""
    data = terminal.since(start)
    shown = [
        (int(match[1].replace(b",", b"")), terminal.arrival(start + match.end()))
        for match in re.finditer(rb"iteration ([\d,]+) / ", data)
    ]
    found: list[float] = []
    at = 0
    for iteration, moment in sorted(written.items()):
        while at < len(shown) and shown[at][0] < iteration:
            at += 1
        if at < len(shown):
            found.append(shown[at][1] - moment)
    return found


def main(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "train.log"
        write_log(log, FIRST - 1)
        with Terminal((*MDK_TUI, "watch", str(log))) as terminal:
            terminal.wait_for(f"{FIRST - 1:,}")
            terminal.quiet()
            start, cpu = terminal.size, terminal.cpu()
            writer = subprocess.Popen(
                (sys.executable, __file__, "--write", str(log), str(seconds)),
                stdout=subprocess.PIPE,
                text=True,
            )
            taken = echoes(terminal, seconds - 1.5)
            report = json.loads(writer.communicate()[0])
            busy = terminal.cpu() - cpu
            written = dict(report["written"])
            last = max(written)
            late = terminal.wait_for(f"{last:,}", after=start) - written[last]
            shown = sorted(latencies(terminal, start, written))
        events = subprocess.run(
            (*MDK_TUI, "summary", "--json", str(log)), capture_output=True, text=True, check=True
        )
    taken.sort()
    summary = json.loads(events.stdout)
    table(
        f"Flood of {report['lines'] / report['seconds']:,.0f} lines/s for {report['seconds']:.0f} s",
        [
            ("key echo, median", f"{statistics.median(taken) * 1000:.0f} ms", ""),
            (
                "key echo, 95th percentile",
                f"{taken[int(len(taken) * 0.95)] * 1000:.0f} ms",
                f"≤ 150 ms ({len(taken)} keys)",
            ),
            ("newest value on screen after, median", f"{statistics.median(shown) * 1000:.0f} ms", ""),
            (
                "newest value on screen after, 95th percentile",
                f"{shown[int(len(shown) * 0.95)] * 1000:.0f} ms",
                f"≤ 200 ms ({len(shown)} of {len(written)} iterations)",
            ),
            ("the last value, after its writing", f"{late * 1000:.0f} ms", "≤ 200 ms"),
            ("last iteration by summary", f"{summary['iteration']:,}", f"{last:,}"),
            ("CPU of the monitor", f"{100 * busy / report['seconds']:.0f} %", ""),
        ],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        flood(Path(sys.argv[2]), float(sys.argv[3]))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 12)
