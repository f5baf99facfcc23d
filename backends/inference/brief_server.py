"""A text server for a few requests: started beside whoever asks, ended with it, no run of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Generator
from pathlib import Path

from backends.errors import UserError
from backends.inference.megatron_api import MegatronClient
from backends.inference.readiness import loading_words
from backends.launch.commands import commands, problems
from backends.launch.ports import with_master_port
from backends.megatron.parser import Parser
from backends.runs.judgement import not_ready
from backends.runs.plan import RunPlan
from backends.runs.signs import SignReader, Signs
from backends.workspace import Workspace

LOAD_LIMIT = 900.0  # s to load and to listen
END_LIMIT = 30.0  # s between TERM and KILL
POLL = 0.2  # s
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def brief_server(
    plan: RunPlan, workspace: Workspace, log: Path, *, limit: float = LOAD_LIMIT
) -> Generator[MegatronClient, None, None]:
    """A client of the server of `plan`, which prints to `log`. Raises UserError when it cannot answer.

    It is ended with the context, and told to end (TERM) if this process dies.
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
        yield MegatronClient(_address(plan, process, log, limit, time.monotonic))
    finally:
        _end(process)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGTERM)


def _address(
    plan: RunPlan, process: subprocess.Popen[bytes], log: Path, limit: float, clock: Callable[[], float]
) -> str:
    """Where it listens, once its log says that the checkpoint was loaded. Raises UserError."""
    reader = SignReader(Signs(), Parser())
    deadline = clock() + limit
    while True:
        ended = process.poll() is not None
        while reader.read_from(log):
            pass
        signs = reader.signs
        unsure = not_ready(plan, signs)
        if signs.address and signs.loaded and not ended:
            if unsure:
                raise UserError(unsure, f"See {log}")
            return signs.address
        if signs.random_start and not signs.loaded:
            raise UserError("No checkpoint was loaded: answers would come from random weights.", f"See {log}")
        if ended:
            reader.finish()
            raise UserError(
                f"The text server ended before it could answer. {signs.error or ''}".strip(), f"See {log}"
            )
        if clock() > deadline:
            raise UserError(
                f"The text server is not ready after {limit:.0f} s: {loading_words(log)}.", f"See {log}"
            )
        time.sleep(POLL)


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM, later KILL, to its whole session: mpirun's ranks are in it too."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_LIMIT)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
