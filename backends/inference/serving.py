"""Plans a text server for a checkpoint: its flags, processes, GPUs and port."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from backends.errors import UserError
from backends.inference.free_gpus import gpu_readings, roomiest
from backends.inference.server_title import server_title
from backends.launch.placement import Placement, default_launcher, placed
from backends.launch.prospect import Prospect, prospect_of
from backends.models import model_flags
from backends.models.arguments import merge_arguments
from backends.runs.branching import make_pin, pin_of
from backends.runs.checkpoints import (
    Iteration,
    describe,
    folder_name,
    read_tracker,
)
from backends.runs.plan import RunPlan, Trainer
from backends.runs.planning import writer_of
from backends.runs.ports import free_port, with_master_port
from backends.runs.stored_values import arguments_file
from backends.runs.torch_archive import stored_arguments
from backends.telemetry.readings import GpuReading
from backends.workspace import Workspace, shell_command


def serve_plan(
    workspace: Workspace,
    save: Path,
    *,
    port: int,
    iteration: Iteration | None = None,
    changes: Sequence[str] = (),
    wait: bool = False,
    launcher: str | None = None,
    gpus: tuple[int, ...] | None = None,
    wish: Placement = Placement(),  # noqa: B008  (a constant)
    look: Callable[[], Sequence[GpuReading]] = gpu_readings,
) -> RunPlan:
    """A text server on checkpoint `iteration` of `save`, by default on the one that the tracker file names when it loads.

    `wait`: wait for the first checkpoint there, then follow the newest. The model's flags come from the run that wrote
    the checkpoint, else from the checkpoint. Default `gpus`: those with the most free memory. Raises UserError.
    """
    if not wait:
        _check(save, iteration)
    writer = writer_of(workspace, save)
    parent = writer.plan() if writer else None
    trainer, model = _model_of(parent, save, iteration)
    waiting = ("--wait-for-checkpoint", "--follow-checkpoints") if wait else ()
    plan = RunPlan(
        kind="serve",
        trainer=trainer,
        launcher=launcher or default_launcher(trainer),
        preset=parent.preset if parent else "",
        title=server_title((parent.title or parent.preset) if parent else save.name, iteration),
        arguments=merge_arguments(model, ("--port", str(port), *waiting, *changes)),
        load=str(save if iteration is None else pinned(workspace, save, iteration)),
        gpus=gpus,
        parent=writer.name if writer else None,
    )
    plan = _here(placed(plan, workspace, wish), wish)
    if trainer == "server" and gpus is None and not plan.hosts:
        plan = dataclasses.replace(plan, gpus=roomiest(look(), plan.processes))
    return plan


def serve_prospect(workspace: Workspace, save: Path, iteration: Iteration | None = None) -> Prospect:
    """A text server on checkpoint `iteration` of `save`, else on its newest. Raises UserError when there is none."""
    plan = with_master_port(serve_plan(workspace, save, port=free_port(), iteration=iteration), workspace)
    step = () if iteration is None else ("--iteration", str(iteration))
    return prospect_of(workspace, plan, "serve", shell_command(workspace, "serve", str(save), *step))


def pinned(workspace: Workspace, save: Path, iteration: Iteration) -> Path:
    """A folder, made if need be, from which any server loads `iteration` of `save`. Raises UserError."""
    folder = pin_of(workspace, save, iteration)
    make_pin(save, iteration, folder)
    return folder


def _here(plan: RunPlan, wish: Placement) -> RunPlan:
    """The plan on this machine, whose loopback address it listens on, instead of the settings' training nodes."""
    if wish.hostfile is not None or not plan.hosts:
        return plan
    processes = plan.processes if plan.trainer == "server" else wish.processes or 1
    return dataclasses.replace(plan, hosts=(), processes=processes)


def _check(save: Path, iteration: Iteration | None) -> None:
    see = f"See what is there: mdk-tui checkpoints {save}"
    wanted: Iteration | None = iteration
    if wanted is None:
        tracker = read_tracker(save)
        if tracker.iteration is None:
            raise UserError(f"{save} holds no checkpoint to serve. {tracker.problem}", see)
        wanted = tracker.iteration
    folder = save / folder_name(wanted)
    if not folder.is_dir():
        raise UserError(f"{save} holds no checkpoint of iteration {wanted}.", see)
    if reason := describe(folder, tracked=True).reason:
        raise UserError(f"The checkpoint of iteration {wanted} is not complete: {reason}", see)


def _model_of(
    parent: RunPlan | None, save: Path, iteration: Iteration | None
) -> tuple[Trainer, tuple[str, ...]]:
    """(trainer that serves it, the model's flags). A checkpoint of the demo needs no flags."""
    if parent is not None:
        return (
            ("server", model_flags.of_run(parent.arguments)) if parent.trainer == "megatron" else ("demo", ())
        )
    wanted = iteration if iteration is not None else read_tracker(save).iteration
    file = arguments_file(save / folder_name(wanted)) if wanted is not None else None
    stored = stored_arguments(file) if file is not None else None
    if stored is None or model_flags.is_demo(stored):
        return "demo", ()  # or not readable, which the demo's server reports
    return "server", model_flags.of_checkpoint(stored)
