"""What stopping a run would do, found out before the user is asked how to stop it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from backends.runs.catalog import RunInfo
from backends.runs.checkpoints import Iteration, read_tracker
from backends.runs.folder import RunFolder
from backends.runs.judgement import hanging, withheld
from backends.runs.signs import Signs
from backends.settings import read_settings
from backends.workspace import Workspace


@dataclass(frozen=True, slots=True)
class StopProspect:
    """What a stop of `run` would do.

    `withheld`: why saving now would do harm, None when it would not. `hangs`: the error after which the log is silent.
    `saved`: the iteration that the tracker file names. `resumes`: whether [resume] resumes a crashed run by itself.
    """

    run: str
    kind: str  # train, serve
    save: str | None
    iteration: int | None
    limit_minutes: float
    withheld: str | None
    hangs: str | None = None
    saved: Iteration | None = None
    resumes: bool = False


def stop_prospect(workspace: Workspace, folder: RunFolder, info: RunInfo) -> StopProspect:
    """Raises UserError when the plan or the settings cannot be read."""
    state, plan, settings = folder.state(), folder.plan(), read_settings(workspace.settings)
    signs = state.signs if state else Signs()
    return StopProspect(
        folder.name,
        info.kind or "train",
        info.save,
        info.iteration,
        settings.stop.limit_minutes,
        withheld(plan, signs),
        hangs=hanging(signs, _silence(folder.log)),
        saved=read_tracker(Path(plan.save)).iteration if plan.save else None,
        resumes=settings.resume.automatic > 0,
    )


def _silence(log: Path) -> float:
    """Seconds since the log last grew; 0 where that is not known."""
    try:
        return time.time() - log.stat().st_mtime
    except OSError:
        return 0.0
