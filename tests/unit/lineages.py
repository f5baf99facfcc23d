"""Runs that descend from each other, as folders on disk: for tests of their curves."""

from __future__ import annotations

from pathlib import Path

from log_lines import DONE, WORLD, iterations

from backends.files import write_json
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.state import RunState
from backends.workspace import Workspace


def run(
    workspace: Workspace, name: str, first: int, last: int, *, save: str = "ck/a", parent: str | None = None
) -> RunFolder:
    """A finished run of DATE/TIME `name` that logged iterations `first` to `last`."""
    folder = RunFolder(workspace.runs / name)
    folder.path.mkdir(parents=True)
    plan = RunPlan(
        "train", "demo", title="tiny", save=save, parent=parent, arguments=("--lr", str(last / 1e6))
    )
    write_json(folder.plan_file, plan.as_json())
    folder.write_state(RunState("finished", ended="2026-11-30T12:00:00+00:00"))
    folder.log.write_text(WORLD + iterations(first, last) + DONE)
    return folder


def three_runs(root: Path) -> tuple[Workspace, RunFolder]:
    """A first run to 100, one that continues it from 81 to 150, and a branch of that from 121 to 200."""
    workspace = Workspace(root)
    run(workspace, "2026-11-30/09-00-00", 1, 100)
    run(workspace, "2026-11-30/10-00-00", 81, 150, parent="2026-11-30/09-00-00")
    branch = run(workspace, "2026-11-30/11-00-00", 121, 200, save="ck/b", parent="2026-11-30/10-00-00")
    return workspace, branch
