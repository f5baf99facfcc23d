"""Runs the actions of a step one after the other, echoing each command before it runs; the first failure ends it."""

from __future__ import annotations

import collections
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import BinaryIO

from backends.errors import UserError
from backends.setup.explain import explain
from backends.setup.step import Action
from backends.text import clean_line


def run_actions(
    actions: Sequence[Action], environment: Mapping[str, str], out: BinaryIO | None = None
) -> None:
    """Run all of `actions`; their output goes to `out` (standard output) as it comes. Raises UserError when one fails.

    An interrupt (Ctrl-C) reaches the command too, being in our process group; the step can simply be run again.
    """
    output = out or sys.stdout.buffer
    for action in actions:
        output.write(f"# {action.title}\n+ {_shown(action)}\n".encode())
        output.flush()
        status, tail = _run(action, environment, output)
        if status != 0:
            found = explain(tail, status)
            raise UserError(f"{action.title}: {found.message}", found.remedy)


def _shown(action: Action) -> str:
    return f"cd {shlex.quote(str(action.cwd))} && {action.shown}"


def _run(action: Action, environment: Mapping[str, str], output: BinaryIO) -> tuple[int, list[str]]:
    """(status, last lines). Output is passed on unbuffered: progress rewritten with \\r stays live."""
    tail: collections.deque[str] = collections.deque(maxlen=200)
    stdin = action.stdin.open("rb") if action.stdin else None
    try:
        process = subprocess.Popen(
            list(action.argv),
            cwd=action.cwd,
            env={**environment, **action.env},
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return 127, [f"{action.argv[0]}: {error.strerror}"]
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
        process.wait()
        raise
    if rest:
        tail.append(clean_line(rest.decode(errors="replace")))
    return status, list(tail)
