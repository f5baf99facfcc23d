"""Where a plan runs: the number of processes, the nodes, the image. What the user does not say follows from the rest."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.launch.hostfile_source import find_hostfile, hosts_of
from backends.launch.image import workspace_image
from backends.megatron.indexed_dataset import find_prefix
from backends.models.arguments import flatten, group_arguments, int_of
from backends.runs.branching import absolute
from backends.runs.plan import RunPlan, Trainer
from backends.settings import Settings, SlurmSettings, read_settings
from backends.workspace import Workspace

SPLIT = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size")
CONTEXT = "--context-parallel-size"
FILES = ("--data-path", "--vocab-file", "--merge-file", "--tokenizer-model")


@dataclass(frozen=True, slots=True)
class Placement:
    """A user's choices. None: not said."""

    launcher: str | None = None
    gpus: tuple[int, ...] | None = None
    processes: int | None = None
    image: Path | None = None
    in_image: bool = True  # False: without an image, even if the workspace has one
    no_home: bool = False  # the image does not see the home folder; settings may say so too
    hostfile: Path | None = None  # "none": this machine alone


def default_launcher(trainer: Trainer) -> str:
    """The launcher of a run when the user names none."""
    return "local" if trainer == "demo" else "mpirun"


def placed(
    plan: RunPlan,
    workspace: Workspace,
    wish: Placement,
    environment: Mapping[str, str] = os.environ,
    *,
    present: int | None = None,
    usual: int | None = None,
    here: Path | None = None,
) -> RunPlan:
    """`plan` with launcher, image, nodes, processes and layout, and with absolute paths of its files.

    By default it takes as many GPUs as the preset needs (`usual`), else as this machine has (`present`).
    `here`: the user's folder, for relative paths. Raises UserError for an unreadable hostfile or settings.
    """
    settings = read_settings(workspace.settings)
    plan = dataclasses.replace(
        plan,
        launcher=wish.launcher or plan.launcher,
        gpus=wish.gpus if wish.gpus is not None else plan.gpus,
        arguments=found_files(plan.arguments, (here or Path.cwd(), workspace.megatron)),
    )
    hosts = _hosts(plan, workspace, settings, wish, environment) if plan.launcher == "mpirun" else ()
    image = absolute(wish.image) if wish.image else None
    if image is None and plan.trainer != "demo":
        image = workspace_image(workspace, settings.image)
    processes = wish.processes or _processes(plan, hosts, usual, present, settings.slurm)
    return dataclasses.replace(
        plan,
        hosts=hosts,
        processes=processes,
        layout=_layout(plan, processes),
        image=str(image) if image and wish.in_image else None,
        image_options=("--no-home",) if wish.no_home else (),
    )


def _hosts(
    plan: RunPlan, workspace: Workspace, settings: Settings, wish: Placement, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """The nodes of the hostfile. One that the user did not name is used only for Megatron-LM's training, and not when GPUs
    of this machine were chosen. A node without slots takes one process a chosen GPU."""
    found = find_hostfile(workspace, settings.mpi, environment, wish.hostfile)
    if found is None:
        return ()
    unnamed = found.why in ("site", "Slurm")
    if unnamed and (plan.trainer != "megatron" or plan.gpus is not None):
        return ()
    slots = f":{len(plan.gpus)}" if plan.gpus else ""
    return tuple(host if ":" in host else host + slots for host in hosts_of(found))


def found_files(arguments: Sequence[str], folders: Sequence[Path]) -> tuple[str, ...]:
    """`arguments` with absolute paths of data, vocabulary and tokenizer, if one of `folders` has them.

    Users write paths relative to their folder, the tutorial relative to the clone, and the job runs in the clone.
    """
    groups = group_arguments(arguments)
    return flatten(
        (flag, tuple(_found(word, folders) for word in values) if flag in FILES else values)
        for flag, values in groups
    )


def _found(word: str, folders: Sequence[Path]) -> str:
    """`word` may hold several prefixes and weights. A data set may be named `arxiv` or `arxiv_text_document.idx`, too."""
    if " " in word:
        return " ".join(_found(part, folders) for part in word.split())
    expanded = Path(word).expanduser()
    for folder in folders:
        path = folder / expanded
        if not word or not path.name:  # nothing, or the root
            continue
        path = find_prefix(path)
        if any(path.with_name(path.name + end).exists() for end in ("", ".idx")):
            return str(absolute(path))
    return word


def _processes(
    plan: RunPlan, hosts: tuple[str, ...], usual: int | None, present: int | None, slurm: SlurmSettings
) -> int:
    """The number of processes: the parts of a server's model; one a slot of the nodes; else one a chosen or present GPU."""
    if plan.trainer == "server":
        tensor, pipeline = (int_of(plan.arguments, flag) or 1 for flag in SPLIT)
        return tensor * pipeline
    if plan.launcher == "local":
        return plan.processes
    if plan.launcher == "slurm" and plan.trainer != "demo":
        if usual and not plan.gpus:
            return usual
        return max(slurm.nodes, 1) * (len(plan.gpus) if plan.gpus else max(slurm.gpus_per_node, 1))
    if hosts:
        return sum(int(host.partition(":")[2] or 1) for host in hosts)
    if plan.gpus:
        return len(plan.gpus)
    return max(1, usual or present or 1) if plan.trainer == "megatron" else plan.processes


def _layout(plan: RunPlan, processes: int) -> dict[str, int]:
    tensor, pipeline, context = (max(1, int_of(plan.arguments, flag) or 1) for flag in (*SPLIT, CONTEXT))
    copies = max(1, processes // (tensor * pipeline * context))
    return {"tp": tensor, "pp": pipeline, "cp": context, "dp": copies}
