"""Where a plan runs: how many processes, on which nodes, in which image. What is not said follows from the rest."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.launch.image import workspace_image
from backends.runs.arguments import int_of
from backends.runs.plan import RunPlan, Trainer
from backends.runs.planning import absolute
from backends.settings import read_settings
from backends.workspace import Workspace

SPLIT = ("--tensor-model-parallel-size", "--pipeline-model-parallel-size")
# A line of Open MPI's hostfile: a name, slots, a comment.
NODE = re.compile(r"(?P<name>[\w.\-]+)(?:\s+slots\s*=\s*(?P<slots>\d+))?(?:\s+max[-_]slots\s*=\s*\d+)?")


@dataclass(frozen=True, slots=True)
class Placement:
    """A user's choices. None: not said."""

    processes: int | None = None
    image: Path | None = None
    in_image: bool = True  # False: without one, whatever the workspace has
    no_home: bool = False  # the image does not see the home folder; settings may say so too
    hostfile: Path | None = None


def default_launcher(trainer: Trainer) -> str:
    return "local" if trainer == "demo" else "mpirun"


def placed(plan: RunPlan, workspace: Workspace, wish: Placement) -> RunPlan:
    """`plan` with its image, nodes and processes. Raises UserError for a hostfile or settings that cannot be read."""
    settings = read_settings(workspace.settings)
    hostfile = wish.hostfile or (workspace.root / settings.mpi.hostfile if settings.mpi.hostfile else None)
    hosts = read_hostfile(hostfile) if hostfile and plan.launcher == "mpirun" else ()
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


def _processes(plan: RunPlan, hosts: tuple[str, ...]) -> int:
    """As many as a server's model is split into; one a slot of the nodes, else one a GPU that was chosen, else one."""
    if plan.trainer == "server":
        tensor, pipeline = (int_of(plan.arguments, flag) or 1 for flag in SPLIT)
        return tensor * pipeline
    if hosts:
        return sum(int(host.partition(":")[2] or 1) for host in hosts)
    return len(plan.gpus) if plan.gpus and plan.launcher != "local" else plan.processes


def read_hostfile(path: Path) -> tuple[str, ...]:
    """`NAME:SLOTS` of each node, or `NAME`. Raises UserError naming the line that is none."""
    try:
        lines = path.expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UserError(
            f"The hostfile {path} cannot be read: {why}.", "Check --hostfile.", status=2
        ) from None
    hosts: list[str] = []
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = NODE.fullmatch(text)
        if found is None:
            raise UserError(
                f"{path}, line {number}: {text!r} names no node.", "Write: NAME slots=GPUS", status=2
            )
        hosts.append(f"{found['name']}:{found['slots']}" if found["slots"] else found["name"])
    if not hosts:
        raise UserError(f"The hostfile {path} names no node.", "Write one a line: NAME slots=GPUS", status=2)
    return tuple(hosts)
