"""The interface of a set-up step: it reports the state on disk, and returns the commands for what is missing.

Looking changes nothing. Commands are argument lists and run exactly as shown: in the foreground by `mdk-tui setup`, as a
separate job by the application.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

from backends.errors import UserError
from backends.launch.image import find_singularity, workspace_image
from backends.programs import Programs, RealPrograms
from backends.settings import Settings, read_settings
from backends.workspace import Workspace

NO_SINGULARITY = "There is no singularity, neither in PATH nor in /opt/singularity/bin."
INSTALL_SINGULARITY = "Install Apptainer or SingularityCE, or name it in mdk.toml: [image] singularity."
Verdict: TypeAlias = Literal["ok", "warning", "failed", "skipped", "pending", "running"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of a step. `evidence` says what was seen, `remedy` what to do about it ("" for nothing).

    `details` are further lines, such as one for each patch.
    """

    name: str
    verdict: Verdict
    evidence: str
    remedy: str = ""
    details: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "verdict": self.verdict,
            "evidence": self.evidence,
            "remedy": self.remedy or None,
            "details": list(self.details),
        }


@dataclass(frozen=True, slots=True)
class Action:
    """One command of a step.

    `stdin` is a file to read as standard input. `weight` warns before a long or large command, "" for none. `documents` is
    the number of documents to process, 0 if unknown.
    """

    title: str
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    stdin: Path | None = None
    weight: str = ""
    documents: int = 0

    @property
    def shown(self) -> str:
        """The command as a person would type it in `cwd`."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        words.append(shlex.join(self.argv))
        if self.stdin is not None:
            words.append(f"< {shlex.quote(str(self.stdin))}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Choices:
    """The user's choices for a set-up; "" and None stand for the tutorial's."""

    repository: str = ""
    branch: str = ""
    definition: Path | None = None
    corpus: Path | None = None  # a local .jsonl instead of the download
    workers: int = 0  # of the preprocessing; 0: as settings say
    nodes: int = 1
    whole: bool = False  # read the whole corpus when looking, not a sample


@dataclass(frozen=True, slots=True)
class Site:
    """Everything a step may look at. A test can make a site of its own."""

    workspace: Workspace
    settings: Settings
    environment: Mapping[str, str]
    programs: Programs
    choices: Choices = field(default_factory=Choices)

    @property
    def image(self) -> Path:
        return workspace_image(self.workspace, self.settings.image)

    @property
    def singularity(self) -> str | None:
        """The program to call; None if there is none."""
        return find_singularity(self.settings.image, self.programs.find)

    def located(self, chosen: str | Path | None, named: str) -> Path:
        """A file that the user names: `chosen` on the command line, from the current folder; else `named` in mdk.toml, from
        the workspace. Raises UserError for a home folder that does not exist."""
        try:
            return (Path.cwd() if chosen else self.workspace.root) / Path(chosen or named).expanduser()
        except RuntimeError:
            raise UserError(
                f"{chosen or named}: there is no such user.", "Write the path without ~."
            ) from None

    def need_singularity(self) -> str:
        """The program to call. Raises UserError if there is none."""
        if self.singularity is None:
            raise UserError(NO_SINGULARITY, INSTALL_SINGULARITY)
        return self.singularity

    def need_clone(self) -> Path:
        """The clone of Megatron-LM. Raises UserError if there is none."""
        clone = self.workspace.megatron
        if not clone.is_dir():
            raise UserError(f"{clone} is not there yet.", "Do the step megatron first.")
        return clone


def site_of(workspace: Workspace, choices: Choices = Choices()) -> Site:
    """This machine. Raises UserError for settings that cannot be read."""
    return Site(workspace, read_settings(workspace.settings), os.environ, RealPrograms(os.environ), choices)


class StepFindings:
    """Findings under the name of a step."""

    name: str

    def ok(self, evidence: str, details: tuple[str, ...] = ()) -> Finding:
        return Finding(self.name, "ok", evidence, details=details)

    def pending(self, evidence: str, remedy: str, details: tuple[str, ...] = ()) -> Finding:
        return Finding(self.name, "pending", evidence, remedy, details)

    def warning(self, evidence: str, remedy: str, details: tuple[str, ...] = ()) -> Finding:
        return Finding(self.name, "warning", evidence, remedy, details)

    def failed(self, evidence: str, remedy: str, details: tuple[str, ...] = ()) -> Finding:
        return Finding(self.name, "failed", evidence, remedy, details)


class Step(Protocol):
    """One line of the wizard."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    def look(self, site: Site) -> Finding:
        """The state on disk. May take a second or two: call it from a thread."""
        ...

    def actions(self, site: Site) -> Sequence[Action]:
        """What is missing, as commands; [] when there is nothing to do. Raises UserError when it cannot be done here."""
        ...
