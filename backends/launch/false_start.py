"""An mpirun that failed before it started any rank: known by its exit status and by all that it printed.

Seen with Open MPI 5.0.11 in 1 of 90 starts, when several began in one moment on a busy machine. Nothing ran, so the same
command is started again.
"""

from __future__ import annotations

import re
from pathlib import Path

from backends.runs.state import JobExit

STATUS = 213
WORDS = "listener thread failed to start"  # PMIx, help-pmix-server.txt
RETRIES = 2
RULE = re.compile(r"^-{20,}[ \t]*(?:\n|\Z)", re.MULTILINE)  # above and below each note of Open MPI's
AGAIN = "mdk-tui: mpirun could not start any rank (PMIx's listener thread failed): started again, {number} of {of}.\n"
LONGEST = 16384  # bytes of a log that holds nothing but such notes


def next_try(job_exit: JobExit | None, log: Path) -> int | None:
    """The number of the retry that follows, from 1 to RETRIES; None when the job is not to be started again.

    The log is the proof that no rank printed anything: it holds notes of Open MPI's and our own lines about earlier retries.
    """
    if job_exit is None or job_exit.exit_code != STATUS:
        return None
    try:
        text = log.read_bytes()[: LONGEST + 1].decode(errors="replace")
    except OSError:
        return None
    others = [line for line in "".join(RULE.split(text)[::2]).splitlines() if line.strip()]
    before = [AGAIN.format(number=number, of=RETRIES).strip() for number in range(1, len(others) + 1)]
    if len(text) > LONGEST or WORDS not in text or others != before or len(others) >= RETRIES:
        return None
    return len(others) + 1


def announce(log: Path, number: int) -> str:
    """Write to the log that retry `number` follows; the words for the run's state. Raises OSError."""
    line = AGAIN.format(number=number, of=RETRIES)
    with log.open("a", encoding="utf-8") as file:
        file.write(line)
    return line.removeprefix("mdk-tui: ").strip()
