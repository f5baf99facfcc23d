"""Finds the checkpoint that the user means by a save folder, a base, one `iter_N`, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.runs.branching import absolute
from backends.runs.catalog import trained
from backends.runs.checkpoints import (
    TRACKER,
    Iteration,
    checkpoints,
    describe,
    folder_name,
    is_save_folder,
    iteration_of,
    read_tracker,
    save_folders,
)
from backends.workspace import Workspace

NO_TRACKER = f"there Megatron-LM finds no {TRACKER} and would start from random weights"


@dataclass(frozen=True, slots=True)
class Source:
    """The checkpoint to go on from: `iteration` of the save folder `save`.

    `branch`: the tracker does not name it, or the user wants a branch; Megatron-LM then needs a folder of its own to load
    it from. `why` explains why it is not the folder that was given.
    """

    save: Path
    iteration: Iteration
    branch: bool
    why: str | None = None

    @property
    def checkpoint(self) -> Path:
        return self.save / folder_name(self.iteration)


def find_source(workspace: Workspace, given: Path | None, iteration: int | None) -> Source:
    """The checkpoint that a training can go on from. Raises UserError if it is missing or incomplete."""
    save, wanted, why = checkpoint_meant(workspace, given, iteration)
    tracker = read_tracker(save)
    if wanted is None:
        wanted = tracker.iteration
    if wanted is None:
        remedy = _instead(save) or f"See what is there: mdk-tui checkpoints {save}"
        raise UserError(f"{save} holds no checkpoint to continue from. {tracker.problem}", remedy)
    branch = iteration is not None or wanted != tracker.iteration
    if branch and iteration is None:
        why = f"{why} It goes on in a branch of its own."
    return _whole(Source(save, wanted, branch, why))


def checkpoint_meant(
    workspace: Workspace, given: Path | None, iteration: int | None = None
) -> tuple[Path, Iteration | None, str | None]:
    """(save folder, iteration or None for what its tracker names, why it is not the folder `given`). Raises UserError.

    `given` None means where the newest run saves, `…/iter_N` that checkpoint, a base its newest dated folder with a
    complete checkpoint (`iteration`, if that is given). A save folder is taken as it is: it may still be empty.
    """
    if given is None:
        return newest_save(workspace), iteration, None
    folder = absolute(given)
    if not folder.is_dir():
        raise UserError(
            f"{folder} is no folder.", "See `mdk-tui runs --json` for where each run saves.", status=2
        )
    if (named := iteration_of(folder)) is not None:
        save = folder.parent
        return save, iteration or named, f"{folder.name} is one checkpoint of {save}: {NO_TRACKER}."
    if is_save_folder(folder):
        return folder, iteration, None
    save, why = newest_whole(folder, iteration)
    return save, iteration, f"{folder} is a base: {NO_TRACKER}. {why}"


def _whole(source: Source) -> Source:
    """Raises UserError if it is missing or incomplete: Megatron-LM would exit with status 0, or load half of it."""
    if not source.checkpoint.is_dir():
        there = sorted(c.iteration for c in checkpoints(source.save) if isinstance(c.iteration, int))
        raise UserError(
            f"{source.save} has no checkpoint of iteration {source.iteration}.",
            f"There are: {', '.join(map(str, there))}."
            if there
            else f"See: mdk-tui checkpoints {source.save}",
        )
    if reason := describe(source.checkpoint, tracked=True).reason:
        raise UserError(
            f"Iteration {source.iteration} in {source.save} is not complete. {reason}",
            _instead(source.save) or f"See: mdk-tui checkpoints {source.save}",
        )
    return source


def _instead(save: Path) -> str | None:
    """The command that branches from the newest complete checkpoint of `save`."""
    whole = next((c for c in checkpoints(save) if c.complete and isinstance(c.iteration, int)), None)
    return (
        f"Branch from the newest complete one: mdk-tui resume {save} --iteration {whole.iteration}"
        if whole
        else None
    )


def newest_whole(base: Path, iteration: int | None = None) -> tuple[Path, str]:
    """(the newest dated folder of `base` whose tracker names a complete checkpoint, an explanation with those skipped).

    `iteration`: the newest that has this iteration, complete. Raises UserError if there is none.
    """
    dated = save_folders(base)
    if not dated:
        raise UserError(f"{base} holds no checkpoints.", "Name a folder that a run saved to.")
    passed: list[str] = []
    for save in dated:
        if (why := _not_whole(save, iteration)) is None:
            over = f" Skipped: {'; '.join(passed)}" if passed else ""
            return save, f"Its newest dated folder with {_wanted(iteration)} is {save}.{over}"
        passed.append(f"{save.relative_to(base)}: {why}")
    raise UserError(
        f"None of the {len(dated)} dated folders of {base} holds {_wanted(iteration)}. {passed[0]}",
        f"See: mdk-tui checkpoints {base}",
    )


def _wanted(iteration: int | None) -> str:
    return "a complete checkpoint" if iteration is None else f"iteration {iteration}"


def _not_whole(save: Path, iteration: int | None) -> str | None:
    """Why `iteration` of `save` (None: what its tracker names) cannot be loaded."""
    wanted: Iteration | None = iteration
    if wanted is None:
        tracker = read_tracker(save)
        if tracker.iteration is None:
            return tracker.problem
        wanted = tracker.iteration
    folder = save / folder_name(wanted)
    if not folder.is_dir():
        return f"There is no {folder.name}."
    reason = describe(folder, tracked=True).reason
    return f"{folder.name} is not complete: {reason}" if reason else None


def newest_save(workspace: Workspace) -> Path:
    """The save folder of the newest training run. Raises UserError if there is none."""
    newest = next(trained(workspace), None)
    if newest is not None:
        return newest[1]
    raise UserError(
        "No run of this workspace has saved anything.",
        "Start one: `mdk-tui demo` or `mdk-tui launch`.",
        status=2,
    )
