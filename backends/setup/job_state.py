"""The state of a step's job, as in its `state.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from backends.runs.processes import Machine, Process, this_machine
from backends.setup.step import Action
from backends.text import clean

JobPhase: TypeAlias = Literal["running", "finished", "failed", "cancelled", "interrupted"]
PHASES: tuple[JobPhase, ...] = ("running", "finished", "failed", "cancelled", "interrupted")


@dataclass(frozen=True, slots=True)
class JobState:
    """`action` counts from 0; times are seconds since the epoch. `detached`: it leads a session of its own.

    `mark` is in the environment of everything it started. `message` and `remedy` say why it failed.
    """

    phase: JobPhase
    process: Process | None
    machine: Machine
    detached: bool
    mark: str
    started: float
    ended: float | None = None
    action: int = 0
    message: str = ""
    remedy: str = ""

    @classmethod
    def started_by(cls, process: Process | None, detached: bool, mark: str, now: float) -> JobState:
        return cls("running", process, this_machine(), detached, mark, now)

    @property
    def here(self) -> bool:
        """Whether its process ids mean something on this machine since its last boot."""
        return self.machine == this_machine()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> JobState | None:
        """None if `value` is not the state of a job."""
        if value is None or value.get("phase") not in PHASES:
            return None
        machine, started, ended = value.get("machine"), value.get("started"), value.get("ended")
        if not isinstance(machine, Mapping) or not isinstance(started, (int, float)):
            return None
        host = cast("Mapping[str, Any]", machine)
        action = value.get("action")
        return cls(
            value["phase"],
            Process.from_json(value.get("process")),
            Machine(clean(str(host.get("host", ""))), str(host.get("boot_id", ""))),
            value.get("detached") is True,
            str(value.get("mark") or ""),
            float(started),
            float(ended) if isinstance(ended, (int, float)) else None,
            action if isinstance(action, int) else 0,
            clean(str(value.get("message") or "")),
            clean(str(value.get("remedy") or "")),
        )


def action_json(action: Action) -> dict[str, Any]:
    return {
        "title": action.title,
        "argv": list(action.argv),
        "cwd": str(action.cwd),
        "env": dict(action.env),
        "stdin": None if action.stdin is None else str(action.stdin),
        "documents": action.documents,
    }


def action_from_json(value: object) -> Action | None:
    """None for what is no action."""
    if not isinstance(value, Mapping):
        return None
    known = cast("Mapping[str, Any]", value)
    argv, env = known.get("argv"), known.get("env")
    if not isinstance(argv, list) or not argv or not isinstance(env, Mapping):
        return None
    words = tuple(str(word) for word in cast("list[Any]", argv))
    added = {str(name): str(text) for name, text in cast("Mapping[Any, Any]", env).items()}
    stdin, documents = known.get("stdin"), known.get("documents")
    return Action(
        str(known.get("title") or words[0]),
        words,
        Path(str(known.get("cwd") or "/")),
        added,
        None if stdin is None else Path(str(stdin)),
        documents=documents if isinstance(documents, int) else 0,
    )
