"""Runs the actions of a step one after the other, echoing each command before it runs; the first failure ends it."""

from __future__ import annotations

import collections
import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from backends.errors import UserError
from backends.setup.explain import explain
from backends.setup.step import Action
from backends.text import clean_line

END_LIMIT = 10.0  # s for a command to end when it is asked to


class Output(Protocol):
    """The destination of what a command prints."""

    def write(self, data: bytes, /) -> object: ...
    def flush(self) -> object: ...


def run_actions(
    actions: Sequence[Action],
    environment: Mapping[str, str],
    out: Output | None = None,
    began: Callable[[int], None] = lambda index: None,
) -> None:
    """Run all of `actions`; their output goes to `out` (standard output) as it comes. Raises UserError when one fails.

    `began` is told the number of each action before it runs. An interrupt (Ctrl-C) reaches the command too, being in our
    process group; the step can simply be run again.
    """
    output = _Lossy(out or sys.stdout.buffer)
    for index, action in enumerate(actions):
        began(index)
        output.write(f"# {action.title}\n+ {_shown(action)}\n".encode())
        output.flush()
        status, tail = _run(action, environment, output)
        if status != 0:
            found = explain(tail, status, Path(action.argv[0]).name)
            raise UserError(f"{action.title}: {found.message}", found.remedy)


class _Lossy:
    """Drops output that a full disk does not take: the command goes on, and its failure is still explained."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self._output.write(data)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._output.flush()


def _shown(action: Action) -> str:
    return f"cd {shlex.quote(str(action.cwd))} && {action.shown}"


def _run(action: Action, environment: Mapping[str, str], output: Output) -> tuple[int, list[str]]:
    """(status, last lines). Output is passed on unbuffered: progress rewritten with \\r stays live."""
    tail: collections.deque[str] = collections.deque(maxlen=200)
    stdin = None
    try:
        stdin = action.stdin.open("rb") if action.stdin else None
        process = subprocess.Popen(
            list(action.argv),
            cwd=action.cwd,
            env={**environment, **action.env},
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        said = f"{error.filename or action.argv[0]}: {error.strerror}"
        output.write(f"{said}\n".encode())
        return 127, [said]
    finally:
        if stdin:
            stdin.close()
    assert process.stdout is not None
    rest = b""
    try:
        while chunk := os.read(process.stdout.fileno(), 65536):
            output.write(chunk)
            output.flush()
            *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            tail.extend(clean_line(line.decode(errors="replace")) for line in lines[-200:])
            rest = rest[-65536:]
        status = process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise
    if rest:
        tail.append(clean_line(rest.decode(errors="replace")))
    return status, list(tail)
