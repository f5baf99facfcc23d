"""`mdk-tui parse --json` and `mdk-tui summary --json` beside one regular expression: CPU of whole processes, by layout of the log.

python tests/bench/bench_commands.py [ITERATIONS]

The expression reads and sums six fields, as a loop over the lines and over the whole file at once. The sums of what `parse`
prints must equal its sums. The three take turns; the best of some rounds counts.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench_parser import COLUMNS, SIX, iteration_lines, stamped, with_events

ROUNDS = 3
SIX_FIELDS = f"""
import re, sys
six = re.compile({SIX.pattern!r})
sums = [0.0] * 6
"""
WAYS = {
    "a loop over the lines": SIX_FIELDS
    + """
for line in open(sys.argv[1], "rb"):
    if match := six.search(line):
        for i, text in enumerate(match.groups()):
            sums[i] += float(text)
print(sums)
""",
    "finditer over the file": SIX_FIELDS
    + """
for match in six.finditer(open(sys.argv[1], "rb").read()):
    for i, text in enumerate(match.groups()):
        sums[i] += float(text)
print(sums)
""",
    "parse": "from tui.cli import main; import sys; main(['parse', sys.argv[1], '--json'])",
    "summary": "from tui.cli import main; import sys; main(['summary', sys.argv[1], '--json'])",
}


def layouts(iterations: int) -> Iterator[tuple[str, Iterator[str]]]:
    yield "iteration lines", iteration_lines(iterations)
    yield "an evaluation each 1000", with_events(iteration_lines(iterations), 1000, 5000)
    yield "an evaluation each 100", with_events(iteration_lines(iterations))
    yield "below mpirun's time stamps", stamped(iteration_lines(iterations))


def spent(program: str, log: Path) -> tuple[float, float]:
    """(s of CPU, MB of memory at most) of `program` whose output nobody reads."""
    process = subprocess.Popen([sys.executable, "-c", program, str(log)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"a reader failed with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def check(log: Path) -> None:
    """That what `parse` prints adds up to what the expression finds."""
    run = [sys.executable, "-c"]
    expected = json.loads(subprocess.run([*run, WAYS["finditer over the file"], str(log)], stdout=subprocess.PIPE, check=True).stdout)  # fmt: skip
    sums = [0.0] * 6
    with subprocess.Popen([*run, WAYS["parse"], str(log)], stdout=subprocess.PIPE) as process:
        for line in process.stdout or ():
            row = json.loads(line)
            if row["event"] == "iteration":
                for i, value in enumerate((row["iteration"], *(row["values"][name] for name in COLUMNS))):
                    sums[i] += value
    if not all(math.isclose(a, b, rel_tol=1e-9) for a, b in zip(sums, expected, strict=True)):
        raise SystemExit(f"sums differ: {sums} {expected}")


def main(iterations: int) -> None:
    sys.stdout.write(f"{'s of CPU':28}{'MB':>6}" + "".join(f"{name:>24}" for name in WAYS) + "\n")
    for title, lines in layouts(iterations):
        with tempfile.TemporaryDirectory(prefix="bench-commands-") as folder:
            log = Path(folder) / "output.log"
            with log.open("w") as file:
                file.writelines(lines)
            check(log)
            best = {name: min(spent(program, log) for _ in range(1)) for name, program in WAYS.items()}
            for _ in range(ROUNDS - 1):
                best = {name: min(best[name], spent(program, log)) for name, program in WAYS.items()}
            size = log.stat().st_size / 1e6
        loop, whole, parse, summary = (best[name][0] for name in WAYS)
        sys.stdout.write(
            f"{title:28}{size:6.0f}" + "".join(f"{seconds:24.2f}" for seconds, _ in best.values()) + "\n"
        )
        sys.stdout.write(
            f"{'':28}parse, rate to the loop's {loop / parse:.2f}, to finditer's {whole / parse:.2f} (≥ 0.9); "
            f"summary, CPU to the loop's {summary / loop:.2f} (≤ 1.6), {best['summary'][1]:.0f} MB (< 150)\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
