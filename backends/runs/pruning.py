"""Making room: which checkpoints may go, which never, and what that frees."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.runs.checkpoints import Checkpoint, checkpoints, read_tracker, save_folders

RECORD = "pruned.log"


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
        elif folder.resolve() in linked:
            kept.append((checkpoint, "a branch links to it"))
        elif not checkpoint.complete:
            kept.append((checkpoint, "it is not complete: being written, or for you to look at"))
        elif complete <= keep:
            kept.append((checkpoint, f"among the newest {keep}"))
        else:
            remove.append(checkpoint)
    if read_tracker(save).problem:  # nothing says what a resume would load: touch nothing
        return Pruning(str(save), (), tuple(kept) + tuple((c, "there is no valid tracker") for c in remove))
    return Pruning(str(save), tuple(remove), tuple(kept))


def linked_checkpoints(base: Path) -> frozenset[Path]:
    """The checkpoint folders that branches below `base` link to, resolved."""
    found: set[Path] = set()
    for save in save_folders(base):
        for entry in os.scandir(save):
            if entry.is_symlink():
                found.add(Path(entry.path).resolve())
    return frozenset(found)


def prune(plan: Pruning, now: str) -> None:
    """Remove what `plan` names; what was removed stays on record beside the checkpoints (`now`: ISO time). Raises OSError."""
    remove_checkpoints(plan.remove)
    with (Path(plan.save) / RECORD).open("a", encoding="utf-8") as file:
        for checkpoint in plan.remove:
            file.write(f"{now} removed {Path(checkpoint.path).name} ({checkpoint.size} bytes)\n")


def remove_checkpoints(doomed: Iterable[Checkpoint]) -> None:
    """Remove each folder: first renamed, so that an interrupted removal leaves no half checkpoint under a valid name."""
    for checkpoint in doomed:
        folder = Path(checkpoint.path)
        hidden = folder.with_name(f".removing-{folder.name}")
        folder.rename(hidden)
        shutil.rmtree(hidden)
