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


@dataclass(frozen=True, slots=True)
class Answer:
    """What a program said. `status` is None when it could not be started or did not answer in time; then `stderr` says which."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


class Programs(Protocol):
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
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                cwd=cwd,
                env={**self._environment, **(env or {})},
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Answer(None, "", f"no answer within {timeout:g} s")
        except OSError as error:
            return Answer(None, "", error.strerror or str(error))
        return Answer(done.returncode, _text(done.stdout), _text(done.stderr))


def _text(output: bytes) -> str:
    return clean(output.decode(errors="replace"))
