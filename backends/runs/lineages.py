"""Everything that can be resumed: the save folders of all runs and of their bases, with their checkpoints, newest first."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.files import free_bytes, real
from backends.runs.catalog import describe, trained
from backends.runs.checkpoints import (
    Checkpoint,
    checkpoints,
    is_save_folder,
    linked_folders,
    read_tracker,
    save_folders,
)
from backends.runs.folder import NAME, RunFolder
from backends.runs.save_forecast import SaveForecast, forecast
from backends.runs.save_history import SaveHistory, read_save_history
from backends.text import clean_line
from backends.workspace import Workspace


@dataclass(frozen=True, slots=True)
class SavedPoint:
    """One checkpoint with its loss (None: not in any log)."""

    checkpoint: Checkpoint
    loss: float | None = None
    seconds: float | None = None  # duration of its save


@dataclass(frozen=True, slots=True)
class Lineage:
    """One save folder. `run` is the last run that wrote it (None: no run of this workspace), `busy` if that still runs.

    `branch_of` is the folder whose checkpoint it began with, `trouble` says why the tracker names no checkpoint.
    """

    save: Path
    points: tuple[SavedPoint, ...]
    run: str | None = None
    title: str = ""
    phase: str = ""
    busy: bool = False
    branch_of: Path | None = None
    trouble: str | None = None
    forecast: SaveForecast | None = None

    @property
    def newest(self) -> float:
        """Time of the newest checkpoint in s since the epoch."""
        return max((point.checkpoint.modified for point in self.points), default=0.0)


def lineages(
    workspace: Workspace, closed: Callable[[], bool] = lambda: False
) -> Iterator[tuple[Lineage, ...]]:
    """Yields all lineages again whenever more is known: first the folders one by one, then the losses of each.

    Blocks on a slow disk, so call it in a thread. Ends early once `closed()`.
    """
    writers = _writers(workspace)
    found: list[Lineage] = []
    for save in _saves(workspace, list(writers)):
        if closed():
            return
        found.append(_lineage(save, writers.get(save, [])))
        yield _sorted(found)
    if not found:
        yield ()
    for lineage in _sorted(found):
        if closed():
            return
        if runs := writers.get(lineage.save):
            found[found.index(lineage)] = with_history(lineage, runs)
            yield _sorted(found)


def _sorted(found: list[Lineage]) -> tuple[Lineage, ...]:
    return tuple(sorted(found, key=lambda lineage: (lineage.newest, str(lineage.save)), reverse=True))


def _writers(workspace: Workspace) -> dict[Path, list[RunFolder]]:
    """save folder → the runs that saved there, newest first."""
    found: dict[Path, list[RunFolder]] = {}
    for folder, save in trained(workspace):
        found.setdefault(save, []).append(folder)
    return found


def _saves(workspace: Workspace, known: list[Path]) -> Iterator[Path]:
    """The save folders that hold checkpoints, each once: those of runs, then others of the same bases."""
    bases = [workspace.checkpoints]
    bases += [save.parents[1] for save in known if NAME.fullmatch(f"{save.parent.name}/{save.name}")]
    seen: set[Path] = set()
    for save in known:
        if is_save_folder(save):
            seen.add(real(save))
            yield save
    for base in dict.fromkeys(bases):
        for save in save_folders(base):
            if real(save) not in seen:
                seen.add(real(save))
                yield save


def _lineage(save: Path, runs: list[RunFolder]) -> Lineage:
    info = describe(runs[0]) if runs else None
    links = linked_folders(save)
    return Lineage(
        save,
        tuple(SavedPoint(checkpoint) for checkpoint in checkpoints(save)),
        run=info.run if info else None,
        title=info.title if info else "",
        phase=info.phase if info else "",
        busy=info is not None and not info.over,
        branch_of=links[0] if links else None,
        trouble=clean_line(read_tracker(save).problem or "") or None,
    )


def _told(point: SavedPoint, history: SaveHistory) -> SavedPoint:
    at = point.checkpoint.iteration
    if not isinstance(at, int):
        return point
    return dataclasses.replace(point, loss=history.losses.get(at), seconds=history.seconds.get(at))


def with_history(lineage: Lineage, runs: list[RunFolder]) -> Lineage:
    """`lineage` with what the logs of its `runs` (newest first) tell: losses, durations of saves, the next save."""
    history = read_save_history(folder.log for folder in reversed(runs))
    points = tuple(_told(point, history) for point in lineage.points)
    try:
        plan = runs[0].plan()
    except UserError:
        return dataclasses.replace(lineage, points=points)
    runs_now = not describe(runs[0]).over
    coming = forecast(
        [point.checkpoint for point in points],
        history,
        interval=plan.save_interval,
        train_iters=plan.train_iters,
        free=free_bytes(lineage.save),
    )
    if not runs_now:
        coming = dataclasses.replace(coming, next_iteration=None, seconds_until=None)
    return dataclasses.replace(lineage, points=points, forecast=coming)
