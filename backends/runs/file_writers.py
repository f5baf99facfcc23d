"""Finds out from /proc whether a file is being written."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from backends.runs.processes import PROC

WRITING = os.O_WRONLY | os.O_RDWR


def written_here(path: Path, proc: Path = PROC) -> bool:
    """Whether a process of this machine has `path` open for writing. Processes of other users cannot be examined."""
    try:
        wanted = path.stat()
        processes = [path for path in proc.iterdir() if path.name.isdigit()]
    except OSError:
        return False
    return any(_writes(process, (wanted.st_dev, wanted.st_ino)) for process in processes)


def _writes(process: Path, wanted: tuple[int, int]) -> bool:
    try:
        descriptors = os.listdir(process / "fd")  # noqa: PTH208 (a Path for each would be slower)
    except OSError:
        return False  # ended, or another user's
    for descriptor in descriptors:
        with contextlib.suppress(OSError, ValueError):
            found = os.stat(process / "fd" / descriptor)  # noqa: PTH116
            if (found.st_dev, found.st_ino) == wanted:
                words = (process / "fdinfo" / descriptor).read_text().split()
                if int(words[words.index("flags:") + 1], 8) & WRITING:
                    return True
    return False
