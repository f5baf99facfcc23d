"""Finds TensorBoard's event files and their order. It imports no reader, so that looking for them is cheap."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# events.out.tfevents.SECONDS.HOST.PID.NUMBER
NAME = re.compile(r".*tfevents\.(\d{1,15})\b.*", re.DOTALL)


def is_event_path(path: Path) -> bool:
    """Whether `path` names event files: a folder, or a file with such a name."""
    return path.is_dir() or "tfevents" in path.name


def event_files(path: Path) -> list[Path]:
    """The event files of one run, oldest first: `path` itself, those in the folder `path`, else those in the newest folder
    below it. Empty if there are none."""
    if not path.is_dir():
        return [path]
    found = _in_order(path.glob("*tfevents*"))
    if not found and (below := _in_order(path.rglob("*tfevents*"))):
        found = _in_order(below[-1].parent.glob("*tfevents*"))
    return found


def _in_order(paths: Iterable[Path]) -> list[Path]:
    return sorted((path for path in paths if path.is_file()), key=lambda path: (_begun(path), path.name))


def _begun(path: Path) -> int:
    """s since the epoch at which the file was begun, from its name."""
    match = NAME.fullmatch(path.name)
    return int(match[1]) if match else 0
