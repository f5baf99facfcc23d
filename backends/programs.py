"""Asking other programs short questions: a time limit on each, their words cleaned, never a shell."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from backends.text import clean

END_LIMIT = 3.0  # s for a program to end when it is asked to


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said. `status` is None when it could not be started or did not answer in time; then `stderr` says
    which, and `stdout` holds what it had said."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


class Programs(Protocol):
    """Finds programs and asks them. A test answers in place of the real ones."""

    def find(self, name: str) -> str | None:
        """The path of an executable, by PATH or as given; None when there is none."""
        ...

    def ask(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 20,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Answer: ...


class RealPrograms:
    """The programs of this machine. `environment` is what they are started with."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def find(self, name: str) -> str | None:
        return shutil.which(name, path=self._environment.get("PATH", os.defpath))

    def ask(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 20,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Answer:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env={**self._environment, **(env or {})},
            )
        except OSError as error:
            return Answer(None, "", error.strerror or str(error))
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return Answer(None, _text(_ended(process)), f"no answer within {timeout:g} s")
        return Answer(process.returncode, _text(stdout), _text(stderr))


def _ended(process: subprocess.Popen[bytes]) -> bytes:
    """What `process` had said when it was ended. A program that hangs in the kernel is left to itself.

    TERM first: mpirun ends its ranks then, while ranks of a killed mpirun go on.
    """
    said = b""
    for end in (process.terminate, process.kill):
        end()
        try:
            return process.communicate(timeout=END_LIMIT)[0]
        except subprocess.TimeoutExpired as hangs:
            said = hangs.stdout or said
    return said


def _text(output: bytes) -> str:
    return clean(output.decode(errors="replace"))
