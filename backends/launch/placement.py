"""Where a plan runs: how many processes, on which nodes, in which image. What is not said follows from the rest."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.launch.hostfile import find_hostfile, hosts_of
from backends.launch.image import workspace_image
from backends.runs.arguments import int_of
from backends.runs.plan import RunPlan, Trainer
from backends.runs.planning import absolute
from backends.settings import Settings, read_settings
from backends.workspace import Workspace

SPLIT = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size")


@dataclass(frozen=True, slots=True)
class Placement:
    """A user's choices. None: not said."""

    processes: int | None = None
    image: Path | None = None
    in_image: bool = True  # False: without one, whatever the workspace has
    no_home: bool = False  # the image does not see the home folder; settings may say so too
    hostfile: Path | None = None  # "none": this machine alone


def default_launcher(trainer: Trainer) -> str:
    return "local" if trainer == "demo" else "mpirun"


def placed(
    plan: RunPlan, workspace: Workspace, wish: Placement, environment: Mapping[str, str] = os.environ
) -> RunPlan:
    """`plan` with its image, nodes and processes. Raises UserError for a hostfile or settings that cannot be read."""
    settings = read_settings(workspace.settings)
    hosts = _hosts(plan, workspace, settings, wish, environment) if plan.launcher == "mpirun" else ()
    image = absolute(wish.image) if wish.image else None
    if image is None and plan.trainer != "demo":
        image = workspace_image(workspace, settings.image)
    return dataclasses.replace(
        plan,
        hosts=hosts,
        processes=wish.processes or _processes(plan, hosts),
        image=str(image) if image and wish.in_image else None,
        image_options=("--no-home",) if wish.no_home else (),
    )


def _hosts(
    plan: RunPlan, workspace: Workspace, settings: Settings, wish: Placement, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """The nodes of the hostfile. One that nobody named is for Megatron-LM's training, unless GPUs of this machine were
    chosen. A node without slots takes one process a chosen GPU."""
    found = find_hostfile(workspace, settings.mpi, environment, wish.hostfile)
    if found is None:
        return ()
    unnamed = found.why in ("site", "Slurm")
    if unnamed and (plan.trainer != "megatron" or plan.gpus is not None):
        return ()
    slots = f":{len(plan.gpus)}" if plan.gpus else ""
    return tuple(host if ":" in host else host + slots for host in hosts_of(found))


def _processes(plan: RunPlan, hosts: tuple[str, ...]) -> int:
    """As many as a server's model is split into; one a slot of the nodes, else one a GPU that was chosen, else one."""
    if plan.trainer == "server":
        tensor, pipeline = (int_of(plan.arguments, flag) or 1 for flag in SPLIT)
        return tensor * pipeline
    if hosts:
        return sum(int(host.partition(":")[2] or 1) for host in hosts)
    return len(plan.gpus) if plan.gpus and plan.launcher != "local" else plan.processes
