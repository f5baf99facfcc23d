"""A text server for a few requests, which is no run: it is started by the program that asks and ends with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

from backends.errors import UserError
from backends.inference.megatron_api import MegatronClient
from backends.inference.readiness import Readiness, until_address
from backends.launch.commands import commands, problems
from backends.megatron.parser import Parser
from backends.runs.judgement import not_ready
from backends.runs.plan import RunPlan
from backends.runs.ports import with_master_port
from backends.runs.signs import SignReader, Signs
from backends.workspace import Workspace

LOAD_LIMIT = 900.0  # s to load and to listen
END_LIMIT = 30.0  # s between TERM and KILL
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def brief_server(
    plan: RunPlan, workspace: Workspace, log: Path, *, limit: float = LOAD_LIMIT
) -> Generator[MegatronClient, None, None]:
    """A client of the server of `plan`, which prints to `log`. Raises UserError when the server cannot answer.

    The server ends with the context. If this process dies, the kernel sends it TERM.
    """
    plan = with_master_port(plan, workspace)
    if errors := [problem for problem in problems(plan, workspace) if problem.severity == "error"]:
        raise UserError(errors[0].message, errors[0].remedy)
    command = commands(plan, workspace)
    try:
        with log.open("wb") as file:
            process = subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                env={**os.environ, **command.env},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (who calls this has no threads)
            )
    except OSError as error:
        raise UserError(f"The text server could not be started: {error.strerror}.", f"See {log}") from None
    try:
        *_, address = until_address(_looking(plan, process, log), log, limit=limit)
        yield MegatronClient(address)
    finally:
        _end(process)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)


def _looking(plan: RunPlan, process: subprocess.Popen[bytes], log: Path) -> Callable[[], Readiness]:
    """How the server does, by its log."""
    reader = SignReader(Signs(), Parser())

    def look() -> Readiness:
        ended = process.poll() is not None
        while reader.read_from(log):
            pass
        if ended:
            reader.finish()
        signs = reader.signs
        if ended:
            return Readiness(ended=f"ended before it could answer. {signs.error or ''}".strip())
        if signs.random_start and not signs.loaded:
            return Readiness(ended="has loaded no checkpoint: answers would come from random weights.")
        if not signs.address:
            return Readiness()
        doubt = not_ready(plan, signs)
        return Readiness(None if doubt else signs.address, doubt=doubt)

    return look


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM to the server, later KILL to its whole session, which mpirun's ranks are in too."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_LIMIT)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
