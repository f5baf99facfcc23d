"""Making room: which checkpoints may go, which never, and what that frees."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.files import real
from backends.runs.branching import absolute, base_of
from backends.runs.catalog import describe, run_folders
from backends.runs.checkpoints import (
    Checkpoint,
    checkpoints,
    iteration_of,
    measure,
    read_tracker,
    save_folders,
)
from backends.runs.torch_checkpoint import Layout
from backends.workspace import Workspace

RECORD = "pruned.log"
HALF_REMOVED = ".removing-"  # before the name of a checkpoint whose removal has begun


@dataclass(frozen=True, slots=True)
class Pruning:
    """What `prune` would do to one save folder. `kept` says why each of the rest stays."""

    save: str
    remove: tuple[Checkpoint, ...]
    kept: tuple[tuple[Checkpoint, str], ...]

    @property
    def freed(self) -> int:
        """Bytes."""
        return sum(checkpoint.size for checkpoint in self.remove)


def plan_pruning(save: Path, keep: int, linked: frozenset[Path]) -> Pruning:
    """Keep the newest `keep` complete checkpoints of `save` and whatever must never go. `linked`: folders that branches link to.

    Never removed: what the tracker names, what a branch links to, a branch's own link, an incomplete checkpoint (it may
    be in the writing), and the only complete one.
    """
    if keep < 1:
        raise UserError("At least one checkpoint is kept.", "Give --keep 1 or more.", status=2)
    remove: list[Checkpoint] = []
    kept: list[tuple[Checkpoint, str]] = []
    complete = 0
    for checkpoint in checkpoints(save):
        folder = Path(checkpoint.path)
        complete += checkpoint.complete
        if checkpoint.tracked:
            kept.append((checkpoint, "the tracker names it"))
        elif folder.is_symlink():
            kept.append((checkpoint, "it is a branch's link"))
        elif real(folder) in linked:
            kept.append((checkpoint, "a branch links to it"))
        elif not checkpoint.complete:
            kept.append((checkpoint, "it is not complete: being written, or for you to look at"))
        elif complete <= keep:
            kept.append((checkpoint, f"among the newest {keep}"))
        else:
            remove.append(checkpoint)
    if read_tracker(save).problem:  # nothing says what a resume would load: touch nothing
        return Pruning(str(save), (), tuple(kept) + tuple((c, "there is no valid tracker") for c in remove))
    return Pruning(str(save), (*remove, *_half_removed(save)), tuple(kept))


def _half_removed(save: Path) -> Iterator[Checkpoint]:
    """What a removal that was interrupted has left."""
    for folder in sorted(save.glob(f"{HALF_REMOVED}*")):
        iteration = iteration_of(Path(folder.name.removeprefix(HALF_REMOVED)))
        if iteration is not None:
            size, modified = measure(folder)
            reason = "Its removal was interrupted."
            yield Checkpoint(str(folder), iteration, "unknown", Layout(), size, modified, False, reason)


def linked_checkpoints(base: Path) -> frozenset[Path]:
    """The checkpoint folders that branches below `base` link to."""
    found: set[Path] = set()
    for save in save_folders(base):
        try:
            with os.scandir(save) as entries:
                found |= {real(Path(entry.path)) for entry in entries if entry.is_symlink()}
        except OSError:  # it went away meanwhile
            continue
    return frozenset(found)


def needed_by_branches(workspace: Workspace, saves: Iterable[Path], *bases: Path) -> frozenset[Path]:
    """The checkpoint folders that branches link to: those beside `saves`, below `bases`, and of runs of the workspace."""
    places = {*bases, *_places_of_runs(workspace)}
    for save in saves:
        places |= {save, base_of(absolute(save)), base_of(real(save))}
    return frozenset[Path]().union(*map(linked_checkpoints, places))


def _places_of_runs(workspace: Workspace) -> Iterator[Path]:
    """Where runs load from and save to. A text server needs what it loaded until it ends."""
    for folder in run_folders(workspace):
        try:
            plan = folder.plan()
        except UserError:
            continue
        if plan.kind == "train" or not describe(folder).over:
            yield from (Path(place) for place in (plan.load, plan.save) if place)


def prune(plan: Pruning, now: str, linked: frozenset[Path]) -> tuple[Checkpoint, ...]:
    """Remove what `plan` names, and keep a record beside the checkpoints (`now`: ISO time): what was removed.

    What the tracker has come to name since, or a branch to link to (`linked`, as it is now), stays. Raises UserError.
    """
    save = Path(plan.save)
    removed: list[Checkpoint] = []
    try:
        for checkpoint in plan.remove:
            folder, tracker = Path(checkpoint.path), read_tracker(save)
            if tracker.problem or tracker.iteration == iteration_of(folder) or real(folder) in linked:
                continue
            _remove(folder)
            removed.append(checkpoint)
            with (save / RECORD).open("a", encoding="utf-8") as file:
                file.write(f"{now} removed {folder.name} ({checkpoint.size} bytes)\n")
    except OSError as error:
        raise UserError(
            f"{error.filename or save} cannot be removed: {error.strerror}. "
            f"{len(removed)} of {len(plan.remove)} checkpoints were removed.",
            "Check who owns the folder, and whether its file system may be written to.",
        ) from None
    return tuple(removed)


def _remove(folder: Path) -> None:
    """First renamed, so that an interrupted removal leaves no half checkpoint under a valid name."""
    hidden = folder if folder.name.startswith(HALF_REMOVED) else folder.with_name(HALF_REMOVED + folder.name)
    if hidden != folder:
        if hidden.exists():
            shutil.rmtree(hidden)  # an older one of the same name
        folder.rename(hidden)
    if hidden.exists():
        shutil.rmtree(hidden)
