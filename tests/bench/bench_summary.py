"""A log of 1,000,000 iterations: CPU of `mdk-tui summary` against one regular expression, memory, newest values, plots.

python tests/bench/bench_summary.py [ITERATIONS]

The log (about 360 MB) is written into a temporary folder and removed. Times are CPU unless said; the two readers take
turns, so that a machine whose speed changes is unjust to neither.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from terminal import table
from training_log import iteration_line, write_log

from backends.megatron.events import IterationBatch
from backends.megatron.folding import Folder
from backends.megatron.follow import FileSource, Follower
from backends.megatron.record import Record

ROUNDS = 3
READER = """
import re, sys
six = re.compile(sys.argv[2].encode())
total = 0.0
with open(sys.argv[1], "rb") as file:
    for line in file:
        match = six.search(line)
        if match:
            total += float(match[5])
print(total)
"""
FIELDS = (
    r"elapsed time per iteration \(ms\): ([\d.]+) \|",
    r"throughput per GPU \(TFLOP/s/GPU\): ([\d.]+) \|",
    r"learning rate: ([\d.E+-]+) \|",
    r"lm loss: ([\d.E+-]+) \|",
    r"grad norm: ([\d.]+) \|",
)
# The same six fields twice: for lines of any version, and for exactly the lines of this file. The second is about twice
# as fast, so the ratio depends on which of them is asked; both are shown.
TOLERANT = r"iteration +(\d+)/ *\d+ \|.*?" + r".*?".join(FIELDS)
ELAPSED, THROUGHPUT, RATE, LOSS, NORM = FIELDS
EXACT = rf"iteration +(\d+)/ *\d+ \|[^|]*\| {ELAPSED} {THROUGHPUT} {RATE}[^|]*\| {LOSS}[^|]*\| {NORM}"
SUMMARY = "from tui.cli import main; import sys; main(['summary', sys.argv[1], '--json'])"


def measured(program: str, *arguments: str) -> tuple[str, float, float]:
    """(output, s of CPU, MB of memory at most) of `program` in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE)
    assert process.stdout is not None
    output = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stdout.close()
    if process.returncode:
        raise SystemExit(f"a reader failed with status {process.returncode}")
    return output, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def newest_values(log: Path, iterations: int) -> tuple[float, float]:
    """s on the clock until the newest values are there, and until the whole is."""
    follower = Follower(FileSource(log))
    started = time.perf_counter()
    first = whole = 0.0
    for update in follower.updates():
        if update.record.iteration == iterations and not first:
            first = time.perf_counter() - started
        if update.caught_up:
            whole = time.perf_counter() - started
            follower.close()
    if follower.record.iterations_seen != iterations:
        raise SystemExit("the follower lost iterations")
    return first, whole


def plot_query(points: int) -> tuple[float, float, float]:
    """ms of CPU: preparing the first question, the longest slice of that, and a question after a new iteration."""
    record = Record()
    for first in range(1, points + 1, 2800):
        count = min(2800, points + 1 - first)
        record.apply([_batch(first, count)])
    slices: list[float] = []
    more = True
    while more:
        started = time.process_time()
        more = record.prepare("lm loss")
        slices.append(1000 * (time.process_time() - started))
    started = time.process_time()
    for number in range(100):
        record.apply([_batch(points + 1 + number, 1)])
        record.curves("lm loss")
    return sum(slices), max(slices), 10 * (time.process_time() - started)


def _batch(first: int, count: int) -> IterationBatch:
    iterations = range(first, first + count)
    losses = [2 + 8.6 / (1 + i / 400) + 0.05 * math.sin(i * 1.7) for i in iterations]
    return IterationBatch(
        iterations, [None] * count, [None] * count, iterations, [10**7] * count, {"lm loss": losses}
    )


def folding() -> float:
    """Share of a core for display lines under a flood of 20,000 different lines a second."""
    flood = [
        ("\n".join(iteration_line(n) for n in range(first, first + 1000)) + "\n").encode()
        for first in range(0, 20_000, 1000)
    ]
    folder = Folder()
    started = time.process_time()
    for chunk in flood:
        folder.feed(chunk)
    return time.process_time() - started


def idle(log: Path) -> float:
    """Share of a core while nothing comes."""
    source = FileSource(log)
    while source.read(0.0):
        pass
    started = time.process_time()
    source.read(5.0)
    return (time.process_time() - started) / 5


def main(iterations: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-summary-") as folder:
        log = Path(folder) / "million.log"
        write_log(log, iterations)
        tolerant: list[float] = []
        exact: list[float] = []
        ours: list[float] = []
        memory = 0.0
        for _ in range(ROUNDS):
            for times, pattern in ((tolerant, TOLERANT), (exact, EXACT)):
                sum_of_losses, cpu, _ = measured(READER, str(log), pattern)
                if float(sum_of_losses) < iterations:
                    raise SystemExit("the regular expression misses lines")
                times.append(cpu)
            output, cpu, used = measured(SUMMARY, str(log))
            ours.append(cpu)
            memory = max(memory, used)
            found = json.loads(output)
            if (found["iteration"], found["iterations_logged"]) != (iterations, iterations):
                raise SystemExit("summary lost iterations")
        first, whole = newest_values(log, iterations)
        quiet = idle(log)
        size = log.stat().st_size / 1e6
    built, longest, asked = plot_query(iterations)
    one, other, two = (statistics.median(times) for times in (tolerant, exact, ours))
    table(
        f"{iterations:,} iterations, {size:.0f} MB",
        [
            ("one tolerant regular expression", f"{one:.2f} s", ""),
            ("one made for this file", f"{other:.2f} s", ""),
            ("mdk-tui summary, all fields", f"{two:.2f} s", ""),
            ("ratio to the tolerant one", f"{two / one:.2f}", "≤ 1.6"),
            ("ratio to the one for this file", f"{two / other:.2f}", "≤ 1.6"),
            ("memory of summary", f"{memory:.0f} MB", "< 150 MB"),
            ("newest values (clock)", f"{first:.2f} s", "≤ 0.3 s"),
            ("all of it, followed (clock)", f"{whole:.2f} s", ""),
            ("preparing a plot's first question", f"{built:.0f} ms", ""),
            ("the longest slice of that, under the lock", f"{longest:.1f} ms", "≤ 5 ms"),
            ("a plot's question", f"{asked:.2f} ms", "≤ 15 ms with drawing"),
            ("display lines at 20,000 a second", f"{100 * folding():.0f} % of a core", ""),
            ("idle", f"{100 * quiet:.2f} % of a core", "≤ 0.5 %"),
        ],
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
