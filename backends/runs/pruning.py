"""Decides which checkpoints of a save folder may be removed, and removes them."""

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
HALF_REMOVED = ".removing-"  # prefix of a checkpoint whose removal has begun


@dataclass(frozen=True, slots=True)
class Pruning:
    """What `prune` would remove from one save folder. `kept` says why each other checkpoint stays."""

    save: str
    remove: tuple[Checkpoint, ...]
    kept: tuple[tuple[Checkpoint, str], ...]

    @property
    def freed(self) -> int:
        """Bytes."""
        return sum(checkpoint.size for checkpoint in self.remove)


def plan_pruning(save: Path, keep: int, linked: frozenset[Path]) -> Pruning:
    """Keep the newest `keep` complete checkpoints of `save` and all that must stay. `linked`: folders that branches link to.

    Never removed are the checkpoint that the tracker names, those that a branch links to, a branch's own link, and
    incomplete ones (they may be being written). Without a valid tracker nothing is removed.
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
            kept.append((checkpoint, "it is not complete: it may be being written"))
        elif complete <= keep:
            kept.append((checkpoint, f"among the newest {keep}"))
        else:
            remove.append(checkpoint)
    if read_tracker(save).problem:  # it is not known what a resume would load
        return Pruning(str(save), (), tuple(kept) + tuple((c, "there is no valid tracker") for c in remove))
    return Pruning(str(save), (*remove, *_half_removed(save)), tuple(kept))


def _half_removed(save: Path) -> Iterator[Checkpoint]:
    """What an interrupted removal has left behind."""
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
        except OSError:  # it was removed meanwhile
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
    """Remove what `plan` names and log it in `pruned.log` (`now`: ISO time). Returns what was removed. Raises UserError.

    A checkpoint stays if the tracker names it by now, or a branch links to it (`linked`, read again).
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
    """Renames it first, so that an interrupted removal leaves no half checkpoint under a valid name."""
    hidden = folder if folder.name.startswith(HALF_REMOVED) else folder.with_name(HALF_REMOVED + folder.name)
    if hidden != folder:
        if hidden.exists():
            shutil.rmtree(hidden)  # left by an earlier removal
        folder.rename(hidden)
    if hidden.exists():
        shutil.rmtree(hidden)
