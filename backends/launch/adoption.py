"""Gives a run whose supervisor was killed a new one. Every command that looks at runs does this."""

from __future__ import annotations

import os
from collections.abc import Sequence

from backends.errors import UserError
from backends.runs.catalog import RunInfo, describe, run_folders
from backends.runs.folder import RunFolder
from backends.workspace import Workspace


def looked_after(folder: RunFolder, workspace: Workspace, program: Sequence[str] = ()) -> RunInfo:
    """Describe a run, after giving it a supervisor if it has lost its own. `program`: another supervisor than the usual.

    A run of another user cannot be given one: it is only described.
    """
    info = describe(folder)
    if not info.orphaned:
        return info
    # It knows every launcher, and takes more time to import than all the rest of `mdk-tui status`.
    from backends.launch.start import SUPERVISOR, start_supervisor

    try:
        start_supervisor(folder, workspace, os.environ, program or SUPERVISOR)
    except UserError:
        return info
    return describe(folder)


def all_looked_after(workspace: Workspace) -> list[RunInfo]:
    """All runs of a workspace, newest first."""
    return [looked_after(folder, workspace) for folder in run_folders(workspace)]
