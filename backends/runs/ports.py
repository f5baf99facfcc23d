"""Chooses ports: MASTER_PORT, so that two jobs can share a node, and the port on which a server listens."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import ipaddress
import os
import platform
import random
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from backends.errors import UserError
from backends.models.arguments import int_of
from backends.models.problem import Problem
from backends.runs.catalog import run_folders
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.workspace import Workspace

MASTER_PORT = "MASTER_PORT"
SERVER_PORT = 8028
OTHER_SERVER_PORTS = range(20000, 30000)  # below those that Linux gives to outgoing connections
WANTED = {"train": 14535, "serve": 14536}  # the tutorial's
TRIES = 200
NEWEST = 50  # runs whose port is looked up
STARTING = 600.0  # s after which a job that does not listen on its port never will
PATIENCE = 5.0  # s to wait for another process that chooses a port, which takes milliseconds


def is_free(port: int) -> bool:
    """Whether nothing listens on `port` of this machine, on any address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def is_here(host: str, machine: str) -> bool:
    """Whether `host`, as in `mpirun --host`, is this machine, whose name is `machine`. No name server is asked: the short or
    full name decides, or an address that this machine has."""
    name = host.rpartition("@")[2].partition(":")[0].lower()
    if name == "localhost" or name.partition(".")[0] == machine.lower().partition(".")[0]:
        return True
    with contextlib.suppress(ValueError, OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((str(ipaddress.IPv4Address(name)), 0))  # refused for an address of another machine
        return True
    return False


def unseen_port(plan: RunPlan, machine: str | None = None) -> list[Problem]:
    """A warning if the plan's port was probed on this machine (`machine`: its name) while rank 0 listens on another one."""
    port = plan.environment.get(MASTER_PORT)
    if port is None or not plan.hosts or is_here(plan.hosts[0], machine or platform.node()):
        return []
    first = plan.hosts[0].partition(":")[0]
    message = f"{MASTER_PORT} {port} is free on this machine; nobody has looked on {first}, where rank 0 will listen."
    remedy = f"mdk-tui launch --probe looks there, and takes one that is free. Or give another {MASTER_PORT} in its command."
    return [Problem("warning", MASTER_PORT, message, remedy)]


@dataclass(frozen=True, slots=True)
class PortBook:
    """The ports of this machine that are promised to runs, for all workspaces and users: one file per port, named after it.

    A run listens only when its python has started, a minute after its launch; until then only the book knows. A promise
    is void when it is old: then the port is listened on, or free. Where the folder cannot be used nothing is promised.
    """

    folder: Path = Path(tempfile.gettempdir()) / "mdk-tui-ports"
    now: Callable[[], float] = time.time
    patience: float = PATIENCE

    def promised(self) -> set[str]:
        with contextlib.suppress(OSError):
            return {path.name for path in self.folder.iterdir() if self._holds(path)}
        return set()

    def promise(self, port: int, run: Path) -> None:
        path = self.folder / str(port)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)  # an old promise
            # Everybody may write to this folder, so a link that appeared meanwhile is not followed.
            with path.open("x", encoding="utf-8", errors="surrogateescape") as file:
                file.write(f"{run}\n")

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock under which ports of this machine are chosen. Go on without it after `patience` seconds."""
        descriptor = self._open()
        try:
            if descriptor is not None:
                self._lock(descriptor)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            time.sleep(0.05)  # no system call waits for a lock with a time limit

    def _open(self) -> int | None:
        lock = self.folder / "lock"
        with contextlib.suppress(OSError):
            if not self.folder.exists():
                self.folder.mkdir(exist_ok=True)
                self.folder.chmod(0o1777)  # of all users, as the folder above it
            with contextlib.suppress(FileExistsError):
                os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o644))
            # Linux refuses O_CREAT on another user's file in such a folder; a pipe there would be waited for.
            return os.open(lock, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        return None

    def _holds(self, path: Path) -> bool:
        found = path.lstat()
        if (
            not (path.name.isdigit() and stat.S_ISREG(found.st_mode))
            or self.now() - found.st_mtime > STARTING
        ):
            return False
        with contextlib.suppress(OSError, UnicodeDecodeError):
            folder = RunFolder(Path(path.read_text(encoding="utf-8").strip()))
            state = folder.state()
            return folder.path.is_dir() and (state is None or not state.over)
        return True  # of another user


def with_master_port(
    plan: RunPlan,
    workspace: Workspace,
    free: Callable[[int], bool] = is_free,
    *,
    book: PortBook = PortBook(),
    run: Path | None = None,
) -> RunPlan:
    """`plan` with the first port, from the wanted one on, that is free and not reserved by another run.

    With the folder of its `run` it is promised to that one; without, this is a look. A plan without torch.distributed
    stays as it is. Where rank 0 is on another machine, what listens on this one does not matter. Raises UserError.
    """
    if plan.trainer == "demo" or plan.launcher == "local":
        return plan
    given = plan.environment.get(MASTER_PORT, "")
    wanted = int(given) if given.isascii() and given.isdigit() else WANTED[plan.kind]
    with book.locked() if run is not None else contextlib.nullcontext():
        here = not plan.hosts or is_here(plan.hosts[0], platform.node())
        port = choose(wanted, promised(workspace) | book.promised(), free if here else lambda port: True)
        if run is not None:
            book.promise(port, run)
    return dataclasses.replace(plan, environment={**plan.environment, MASTER_PORT: str(port)})


def free_port(
    wanted: int = SERVER_PORT,
    *,
    book: PortBook = PortBook(),
    free: Callable[[int], bool] = is_free,
    sample: Callable[[Sequence[int], int], list[int]] = random.sample,
) -> int:
    """`wanted` if nothing listens there and no run was promised it, else another such port (0: any). Raises UserError."""
    taken = book.promised()
    for port in (wanted, *sample(OTHER_SERVER_PORTS, TRIES)):
        if port and str(port) not in taken and free(port):
            return port
    raise UserError("No port is free.", "End some programs that listen.")


def promise_server_port(plan: RunPlan, run: Path, book: PortBook = PortBook()) -> None:
    """Promise the port of a server that begins to listen later, perhaps only when there is a checkpoint, to its `run`."""
    if plan.kind == "serve" and (port := int_of(plan.arguments, "--port")):
        with book.locked():
            book.promise(port, run)


def choose(wanted: int, taken: Collection[str], free: Callable[[int], bool]) -> int:
    """Raises UserError when none of the ports from `wanted` on is free."""
    for port in range(wanted, min(wanted + TRIES, 65536)):
        if str(port) not in taken and free(port):
            return port
    raise UserError(f"No port from {wanted} on is free.", "End some programs that listen.")


def promised(workspace: Workspace) -> set[str]:
    """The ports of the workspace's runs that have not ended."""
    return {port for folder in islice(run_folders(workspace), NEWEST) if (port := _port_of(folder))}


def _port_of(folder: RunFolder) -> str | None:
    try:
        state = folder.state()
        return None if state is not None and state.over else folder.plan().environment.get(MASTER_PORT)
    except UserError:
        return None
