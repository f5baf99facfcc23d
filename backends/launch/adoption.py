"""Gives a run whose supervisor was killed a new one. Every command that looks at runs does this."""

from __future__ import annotations

import os
from collections.abc import Sequence

from backends.errors import UserError
from backends.launch.start import SUPERVISOR, start_supervisor
from backends.runs.catalog import RunInfo, describe, run_folders
from backends.runs.folder import RunFolder
from backends.workspace import Workspace


def looked_after(folder: RunFolder, workspace: Workspace, program: Sequence[str] = SUPERVISOR) -> RunInfo:
    """Describe a run, after giving it a supervisor if it has lost its own.

    Somebody else's run cannot be given one: it is only described.
    """
    info = describe(folder)
    if not info.orphaned:
        return info
    try:
        start_supervisor(folder, workspace, os.environ, program)
    except UserError:
        return info
    return describe(folder)


def all_looked_after(workspace: Workspace) -> list[RunInfo]:
    """All runs of a workspace, newest first."""
    return [looked_after(folder, workspace) for folder in run_folders(workspace)]
