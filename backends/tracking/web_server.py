"""Starts and stops the web servers of MLflow and TensorBoard on the loopback address, which is reached through SSH.

A server outlives the program that starts it. `outputs/web-servers/` records which run, so that they can be reused or stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from backends.errors import UserError
from backends.files import read_json, write_json
from backends.runs.ports import free_port
from backends.runs.processes import Process, find_process, is_alive, living_processes, this_machine
from backends.text import clean_line
from backends.workspace import Workspace

LOOPBACK = "127.0.0.1"
START_LIMIT = 180.0  # s; MLflow takes ten on a quiet machine, and many times that beside a training
STOP_LIMIT = 10.0  # s between TERM and KILL
LOOK = 0.1  # s


@dataclass(frozen=True, slots=True)
class WebServer:
    """`shows`: the folder or the store that it was started for. `process` leads a session of its own."""

    name: str
    shows: str
    port: int
    process: Process
    file: Path

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"


def ssh_line(port: int, environment: Mapping[str, str], user: str, host: str) -> str:
    """The command for the machine with the browser. The address is the one that this SSH session came to, else `host`."""
    fields = environment.get("SSH_CONNECTION", "").split()
    return f"ssh -N -L {port}:{LOOPBACK}:{port} {user}@{fields[2] if len(fields) == 4 else host}"


def running(workspace: Workspace, name: str) -> list[WebServer]:
    """The servers called `name` of this workspace that run on this machine."""
    return [
        server for file in sorted(_folder(workspace).glob(f"{name}-*.json")) if (server := _read(file, name))
    ]


def start(
    workspace: Workspace,
    name: str,
    shows: str,
    command: Callable[[int], Sequence[str]],
    *,
    port: int,
    environment: Mapping[str, str],
    limit: float = START_LIMIT,
) -> WebServer:
    """The running server for `shows`, else a new one, started with `command(port)`; if `port` is taken, with another.

    Returns when it answers. Raises UserError with the last line of its output.
    """
    if found := next((server for server in running(workspace, name) if server.shows == shows), None):
        return found
    folder = _folder(workspace)
    digest = hashlib.sha256(shows.encode(errors="surrogateescape")).hexdigest()[:8]
    file, log = folder / f"{name}-{digest}.json", folder / f"{name}-{digest}.log"
    chosen = free_port(port)
    argv = tuple(command(chosen))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            child = subprocess.Popen(
                argv, cwd=workspace.root, env=dict(environment), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
    except OSError as error:
        raise UserError(
            f"{argv[0]} cannot be started: {error.strerror}.", f"Its output goes to {log}"
        ) from None
    process = find_process(child.pid)
    if process is not None:
        server = WebServer(name, shows, chosen, process, file)
        _write(server)
        if _answers(server, child, limit):
            return server
        stop(server)
    raise UserError(f"{name} did not start: {_last_words(log)}", f"All that it said: {log}")


def stop(server: WebServer) -> None:
    """End the server and its workers. Returns when they are gone."""
    until = time.monotonic() + STOP_LIMIT
    while members := [p for p in living_processes() if p.session == server.process.session]:
        number = signal.SIGTERM if time.monotonic() < until else signal.SIGKILL
        for member in members:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member.pid, number)
        time.sleep(LOOK)
    with contextlib.suppress(OSError):
        server.file.unlink(missing_ok=True)


def _folder(workspace: Workspace) -> Path:
    return workspace.outputs / "web-servers"


def _write(server: WebServer) -> None:
    with contextlib.suppress(OSError):
        write_json(server.file, {**asdict(server), **asdict(this_machine()), "file": str(server.file)})


def _read(file: Path, name: str) -> WebServer | None:
    value = read_json(file) or {}
    process, machine = Process.from_json(value.get("process")), this_machine()
    shows, port = value.get("shows"), value.get("port")
    here = (value.get("host"), value.get("boot_id")) == (machine.host, machine.boot_id)
    if process and here and is_alive(process) and isinstance(shows, str) and type(port) is int:
        return WebServer(name, shows, port, process, file)
    return None


def _answers(server: WebServer, child: subprocess.Popen[bytes], limit: float) -> bool:
    """Whether the port accepts a connection before `child` ends or `limit` s are over."""
    until = time.monotonic() + limit
    while child.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, server.port), timeout=1.0):
            return True
        time.sleep(LOOK)
    return False


def _last_words(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return clean_line(lines[-1], 300) if lines else "it said nothing."
