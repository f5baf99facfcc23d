"""From choices to a RunPlan: a new run, one that continues, a branch."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import socket
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from backends.errors import UserError
from backends.files import real, write_atomic
from backends.models.arguments import EXIT_SIGNAL, int_of, merge_arguments, without, words_of
from backends.runs.catalog import trained
from backends.runs.checkpoints import (
    ITERATION,
    TRACKER,
    Iteration,
    describe,
    folder_name,
    is_save_folder,
    read_tracker,
    save_folders,
)
from backends.runs.folder import NAME, RunFolder, next_free
from backends.runs.judgement import pinned_folder
from backends.runs.plan import RunPlan, Trainer
from backends.runs.rebuilt_plan import rebuilt_plan
from backends.runs.schedule_comparison import OVERRIDE, USE_CHECKPOINT
from backends.workspace import Workspace

SERVER_PORT = 8028
# Flags that say how one checkpoint is loaded: --finetune would begin at iteration 0 again with each resume.
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
    """A new training run: a preset's `arguments` with the user's `changes`; `save` is its own dated folder."""
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
    """BASE/DATE/TIME, chosen once; it is made when the run starts."""
    return next_free(absolute(base), now)


def base_of(save: Path) -> Path:
    """Where a branch of `save` goes: beside it, among the dated folders of its base."""
    return save.parents[1] if NAME.fullmatch(f"{save.parent.name}/{save.name}") else save.parent


def absolute(path: Path) -> Path:
    """With links as the user wrote them."""
    return Path(os.path.abspath(path.expanduser()))  # noqa: PTH100 (resolve() would follow links)


def continue_plan(workspace: Workspace, save: Path, changes: Sequence[str]) -> RunPlan:
    """Go on where the run that wrote `save` stopped: `--load` = `--save` = the dated folder. Raises UserError."""
    tracker = read_tracker(save)
    if tracker.iteration is None:
        raise UserError(
            f"{save} holds no checkpoint to continue from. {tracker.problem}",
            f"See what is there: mdk-tui checkpoints {save}",
        )
    return _go_on(workspace, save, tracker.iteration, save, changes)


def branch_plan(
    workspace: Workspace, save: Path, iteration: int, branch: Path, changes: Sequence[str]
) -> RunPlan:
    """Go on from an earlier iteration of `save` in `branch`, a folder that `make_branch` fills. Raises UserError."""
    if not (save / folder_name(iteration)).is_dir():
        there = sorted(int(m[1]) for p in _names(save) if (m := ITERATION.fullmatch(p)))
        raise UserError(
            f"{save} has no checkpoint of iteration {iteration}.",
            f"There are: {', '.join(map(str, there))}." if there else f"See: mdk-tui checkpoints {save}",
        )
    return _go_on(workspace, save, iteration, branch, changes)


def _go_on(
    workspace: Workspace, save: Path, iteration: Iteration, target: Path, changes: Sequence[str]
) -> RunPlan:
    """The plan of the run that wrote `save`, with `changes`, loading from and saving to `target`.

    Where no run of the workspace did, it is made of the arguments inside the checkpoint.
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
        batch="",  # what was edited by hand loaded nothing; its arguments are in the plan
        load=str(target),
        save=str(target),
        parent=parent.name if parent else None,
        attempt=0,
        data=_data(arguments),
    )


def make_branch(save: Path, iteration: int, branch: Path) -> None:
    """Fill the empty folder `branch`: a link to the checkpoint and a tracker file of its own. `save` is not touched.

    The link is relative: it also holds where an image sees the base at another path. Raises OSError.
    """
    name = folder_name(iteration)
    target = os.path.relpath(real(save / name), real(branch))
    (branch / name).symlink_to(target, target_is_directory=True)
    # Last, as Megatron-LM does: it says that the rest is there.
    write_atomic(branch / TRACKER, str(iteration))


def pin_of(workspace: Workspace, save: Path, iteration: int) -> Path:
    """The folder from which any program loads `iteration` of `save`; `make_pin` makes it.

    core_r0.8.0 knows `--ckpt-step` and loads what the tracker names all the same.
    """
    key = hashlib.sha256(str(real(save)).encode()).hexdigest()[:8]
    return pinned_folder(workspace.outputs, key, iteration)


def make_pin(save: Path, iteration: int, folder: Path) -> None:
    """Fill `folder`, if need be, with a link to the checkpoint and a tracker that names it. Raises UserError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / folder_name(iteration)).exists():
            make_branch(save, iteration, folder)
    except FileExistsError:
        pass  # another one is being started
    except OSError as error:
        raise UserError(
            f"{folder} cannot be made: {error.strerror}.", "Make room, or check its permissions."
        ) from None


def free_port(wanted: int = SERVER_PORT) -> int:
    """`wanted` if nothing listens there on the loopback address, else one that is free now."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise UserError("No port is free on 127.0.0.1.", "End some programs that listen.")


def writers_of(workspace: Workspace, save: Path) -> Iterator[RunFolder]:
    """The runs of the workspace that save into `save`, newest first."""
    wanted = real(save)
    return (folder for folder, path in trained(workspace) if real(path) == wanted)


def writer_of(workspace: Workspace, save: Path) -> RunFolder | None:
    return next(writers_of(workspace, save), None)


def save_folder_of(
    workspace: Workspace, given: Path | None, iteration: int | None = None
) -> tuple[Path, str | None]:
    """(the save folder that `given` means, why it is another one). None: of the newest run that trained.

    `…/iter_N` means its save folder, a base means its newest dated folder with a whole checkpoint: Megatron-LM would
    start both from random weights. Raises UserError.
    """
    if given is None:
        return newest_save(workspace), None
    folder = absolute(given)
    if not folder.is_dir():
        raise UserError(
            f"{folder} is no folder.", "See `mdk-tui runs --json` for where each run saves.", status=2
        )
    if ITERATION.fullmatch(folder.name) or folder.name == "release":
        return (
            folder.parent,
            f"{folder.name} is one checkpoint of {folder.parent}, which holds the tracker file.",
        )
    if is_save_folder(folder):
        return folder, None
    save, why = newest_whole(folder, iteration)
    return save, f"{folder} is a base. {why}"


def newest_whole(base: Path, iteration: int | None = None) -> tuple[Path, str]:
    """(the newest dated folder of `base` whose tracker names a whole checkpoint, that in words with those passed over).

    `iteration`: one that has this iteration, whole. Raises UserError when there is none.
    """
    dated = save_folders(base)
    if not dated:
        raise UserError(f"{base} holds no checkpoints.", "Name a folder that a run saved to.")
    passed: list[str] = []
    for save in dated:
        if (why := _not_whole(save, iteration)) is None:
            over = f" Passed over: {'; '.join(passed)}" if passed else ""
            return save, f"Its newest dated folder with {_wanted(iteration)} is {save}.{over}"
        passed.append(f"{save.relative_to(base)}: {why}")
    raise UserError(
        f"None of the {len(dated)} dated folders of {base} holds {_wanted(iteration)}. {passed[0]}",
        f"See: mdk-tui checkpoints {base}",
    )


def _wanted(iteration: int | None) -> str:
    return "a whole checkpoint" if iteration is None else f"iteration {iteration}"


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
    return f"{folder.name} is not whole: {reason}" if reason else None


def newest_save(workspace: Workspace) -> Path:
    """Where the newest run that trained saves. Raises UserError when none did."""
    newest = next(trained(workspace), None)
    if newest is not None:
        return newest[1]
    raise UserError(
        "No run of this workspace has saved anything.",
        "Start one: `mdk-tui demo` or `mdk-tui launch`.",
        status=2,
    )


def _with_exit_signal(arguments: Sequence[str]) -> tuple[str, ...]:
    """With the flag that makes TERM save first: without it there is no graceful stop."""
    return merge_arguments(arguments, (EXIT_SIGNAL,))


def _data(arguments: Sequence[str]) -> str | None:
    """What is trained on: one prefix, or several with their weights."""
    return " ".join(words_of(arguments, "--data-path")) or None


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []
