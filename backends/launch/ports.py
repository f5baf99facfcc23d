"""A port for torch.distributed to meet on, so that two jobs share a node."""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable, Collection
from itertools import islice

from backends.errors import UserError
from backends.runs.catalog import run_folders
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.workspace import Workspace

MASTER_PORT = "MASTER_PORT"
WANTED = {"train": 14535, "serve": 14536}  # the tutorial's
TRIES = 200
NEWEST = 50  # runs that are asked which port they hold


def is_free(port: int) -> bool:
    """Whether nothing listens on `port` of this machine, on any address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def with_master_port(plan: RunPlan, workspace: Workspace, free: Callable[[int], bool] = is_free) -> RunPlan:
    """`plan` with the first port from the wanted one on that is neither listened on nor promised to another run.

    A run listens only when its python has started, a minute after the launch: until then only its plan knows the port.
    A plan without torch.distributed stays as it is. Raises UserError.
    """
    if plan.trainer == "demo" or plan.launcher == "local":
        return plan
    given = plan.environment.get(MASTER_PORT, "")
    wanted = int(given) if given.isascii() and given.isdigit() else WANTED[plan.kind]
    port = choose(wanted, promised(workspace), free)
    return dataclasses.replace(plan, environment={**plan.environment, MASTER_PORT: str(port)})


def choose(wanted: int, taken: Collection[str], free: Callable[[int], bool]) -> int:
    """Raises UserError when none of the ports from `wanted` on is free."""
    for port in range(wanted, min(wanted + TRIES, 65536)):
        if str(port) not in taken and free(port):
            return port
    raise UserError(f"No port from {wanted} on is free.", "End some programs that listen.")


def promised(workspace: Workspace) -> set[str]:
    """The ports of the runs that are not over."""
    return {port for folder in islice(run_folders(workspace), NEWEST) if (port := _port_of(folder))}


def _port_of(folder: RunFolder) -> str | None:
    try:
        state = folder.state()
        return None if state is not None and state.over else folder.plan().environment.get(MASTER_PORT)
    except UserError:
        return None
