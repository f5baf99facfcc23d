"""The runs that a run continues or branched from, and the records of their logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from backends.errors import UserError
from backends.megatron.record import Record
from backends.megatron.summary import read_log
from backends.runs.folder import NAME, RunFolder
from backends.workspace import Workspace

Descent: TypeAlias = Literal["restart", "branch"]
LONGEST = 100  # ancestors; the oldest are left out


@dataclass(frozen=True, slots=True)
class Ancestor:
    """An earlier run. `child` says how the next run came from it."""

    folder: RunFolder
    child: Descent


@dataclass(frozen=True, slots=True)
class Chapter:
    """The record of an ancestor's log. `child` says how the next run began."""

    name: str
    record: Record
    child: Descent


def ancestors(workspace: Workspace, folder: RunFolder) -> list[Ancestor]:
    """The runs that `folder` descends from, oldest first. The line ends at a plan that cannot be read, and at a cycle."""
    found: list[Ancestor] = []
    seen = {folder.name}
    while len(found) < LONGEST:
        try:
            plan = folder.plan()
        except UserError:
            break
        parent = plan.parent
        if plan.kind != "train" or parent is None or parent in seen or not NAME.fullmatch(parent):
            break
        before = RunFolder(workspace.runs / parent)
        found.append(Ancestor(before, "restart" if _saves(before) == plan.save else "branch"))
        seen.add(parent)
        folder = before
    return found[::-1]


def chapters(workspace: Workspace, folder: RunFolder) -> Iterator[Chapter]:
    """The records of the `ancestors`, oldest first. Reads each log from start to end; skips one that cannot be read."""
    for ancestor in ancestors(workspace, folder):
        try:
            record = read_log(ancestor.folder.log)
        except UserError:
            continue
        if record.segments:
            yield Chapter(ancestor.folder.name, record, ancestor.child)


def _saves(folder: RunFolder) -> str | None:
    try:
        save = folder.plan().save
    except UserError:
        return None
    return save and str(Path(save))
