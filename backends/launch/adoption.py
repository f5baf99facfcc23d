"""Runs whose supervisor was killed get a new one, from whoever looks next."""

from __future__ import annotations

import os
from collections.abc import Sequence

from backends.errors import UserError
from backends.launch.start import SUPERVISOR, start_supervisor
from backends.runs.catalog import RunInfo, describe, run_folders
from backends.runs.folder import RunFolder
from backends.workspace import Workspace


def looked_after(folder: RunFolder, workspace: Workspace, program: Sequence[str] = SUPERVISOR) -> RunInfo:
    """How a run does, after giving it a supervisor if it has lost its own.

    Where that may not be (somebody else's run), what is seen is told all the same.
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
    """All runs, newest first."""
    return [looked_after(folder, workspace) for folder in run_folders(workspace)]
