"""Finds the commit that a clone of Megatron-LM has checked out, and which of our patches are applied to it."""

from __future__ import annotations

import re
from pathlib import Path

from backends.resources import resource_folder

REFERENCE = re.compile(r"ref: (refs/\S+)\s*")


def git_commit(clone: Path) -> str | None:
    """Read from the .git folder of `clone`: git refuses a clone of another user, and may be missing. None: not known."""
    try:
        head = (clone / ".git" / "HEAD").read_text(encoding="utf-8")
        reference = REFERENCE.fullmatch(head)
        if reference is None:
            return head.strip() or None
        loose = clone / ".git" / reference[1]
        if loose.is_file():
            return loose.read_text(encoding="utf-8").strip() or None
        packed = (clone / ".git" / "packed-refs").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    rows = (line.split() for line in packed.splitlines())
    return next((row[0] for row in rows if len(row) == 2 and row[1] == reference[1]), None)


def applied_patches(clone: Path, patches: Path | None = None) -> tuple[str, ...]:
    """Names of the files in `patches` (default: ours) whose every added line is in the file that they change."""
    try:
        files = sorted((patches or resource_folder("patches")).glob("*.patch"))
        return tuple(file.stem for file in files if _is_applied(clone, file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError):
        return ()


def _is_applied(clone: Path, patch: str) -> bool:
    target = re.search(r"^\+\+\+ b/(\S+)", patch, re.MULTILINE)
    added = {
        line[1:].strip() for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")
    }
    if target is None:
        return False
    try:
        text = (clone / target[1]).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return added <= {line.strip() for line in text.splitlines()} | {""}
