"""Makes the RunPlan of a new run, of a run that continues, and of a branch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from backends.errors import UserError
from backends.files import real
from backends.models.arguments import EXIT_SIGNAL, int_of, merge_arguments, without, words_of
from backends.runs.branching import absolute
from backends.runs.catalog import trained
from backends.runs.checkpoints import Iteration, folder_name, read_tracker
from backends.runs.folder import RunFolder, next_free
from backends.runs.plan import RunPlan, Trainer
from backends.runs.rebuilt_plan import rebuilt_plan
from backends.runs.schedule_comparison import OVERRIDE, USE_CHECKPOINT
from backends.workspace import Workspace

# Flags for the load of one checkpoint. With --finetune, for instance, every resume would start at iteration 0 again.
ONE_LOAD = (OVERRIDE, USE_CHECKPOINT, "--finetune", "--no-load-optim", "--no-load-rng")


def train_plan(
    trainer: Trainer,
    arguments: Sequence[str],
    changes: Sequence[str],
    save: Path,
    *,
    preset: str = "",
    title: str = "",
    launcher: str = "local",
    gpus: tuple[int, ...] | None = None,
    processes: int = 1,
) -> RunPlan:
    """A new training run with a preset's `arguments` and the user's `changes`; `save` is its own dated folder."""
    merged = _with_exit_signal(merge_arguments(arguments, changes))
    return RunPlan(
        kind="train",
        trainer=trainer,
        launcher=launcher,
        preset=preset,
        title=title,
        arguments=merged,
        processes=processes,
        gpus=gpus,
        data=_data(merged),
        save=str(save),
    )


def new_save_folder(base: Path, now: datetime) -> Path:
    """BASE/DATE/TIME. It is chosen once and made when the run starts."""
    return next_free(absolute(base), now)


def continue_plan(workspace: Workspace, save: Path, changes: Sequence[str]) -> RunPlan:
    """Continue the run that wrote `save`: `--load` and `--save` are both its folder. Raises UserError."""
    tracker = read_tracker(save)
    if tracker.iteration is None:
        raise UserError(
            f"{save} holds no checkpoint to continue from. {tracker.problem}",
            f"See what is there: mdk-tui checkpoints {save}",
        )
    return next_plan(workspace, save, tracker.iteration, save, changes)


def next_plan(
    workspace: Workspace, save: Path, iteration: Iteration, target: Path, changes: Sequence[str]
) -> RunPlan:
    """The plan of the run that wrote `save`, with `changes`, loading from and saving to `target`. Raises UserError.

    If no run of the workspace wrote `save`, the plan is made from the arguments inside the checkpoint. `target` is `save`,
    or the folder of a branch.
    """
    parent = writer_of(workspace, save)
    plan = parent.plan() if parent else rebuilt_plan(save / folder_name(iteration))
    arguments = _with_exit_signal(merge_arguments(without(plan.arguments, *ONE_LOAD), changes))
    train_iters = int_of(arguments, "--train-iters")
    if train_iters and isinstance(iteration, int) and iteration >= train_iters:
        raise UserError(
            f"{save} is already at iteration {iteration} of {train_iters}.",
            f"Train longer: mdk-tui resume {save} -- --train-iters {2 * iteration}",
        )
    return dataclasses.replace(
        plan,
        arguments=arguments,
        command=(),
        batch="",  # a command edited by hand is for the first start; its arguments are in the plan
        load=str(target),
        save=str(target),
        parent=parent.name if parent else None,
        attempt=0,
        data=_data(arguments),
    )


def writers_of(workspace: Workspace, save: Path) -> Iterator[RunFolder]:
    """The runs of the workspace that save into `save`, newest first."""
    wanted = real(save)
    return (folder for folder, path in trained(workspace) if real(path) == wanted)


def writer_of(workspace: Workspace, save: Path) -> RunFolder | None:
    """The newest run of the workspace that saves into `save`."""
    return next(writers_of(workspace, save), None)


def _with_exit_signal(arguments: Sequence[str]) -> tuple[str, ...]:
    """With the flag that makes Megatron-LM save on TERM: a graceful stop needs it."""
    return merge_arguments(arguments, (EXIT_SIGNAL,))


def _data(arguments: Sequence[str]) -> str | None:
    """The data: one prefix, or several with their weights."""
    return " ".join(words_of(arguments, "--data-path")) or None
