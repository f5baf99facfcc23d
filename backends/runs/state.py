"""`state.json`: the state of a run as its supervisor knows it. Only the supervisor writes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from backends.files import plain_fields
from backends.runs.automatic import Again
from backends.runs.processes import Machine, Process
from backends.runs.signs import Signs

Phase: TypeAlias = Literal["starting", "running", "stopping", "finished", "failed", "lost"]
PHASES = ("starting", "running", "stopping", "finished", "failed", "lost")
ENDED: tuple[Phase, ...] = ("finished", "failed", "lost")


@dataclass(frozen=True, slots=True)
class RunState:
    """One moment of a run. Times are ISO with the zone; `heartbeat` is seconds since the epoch.

    `job` is the trainer (mpirun, sbatch, …), `leader` the wrapper that leads its session and writes its exit code, `mark`
    the value of MDK_RUN in each process of the job. `reason` explains the phase, `stopping` says how far a stop has come.
    """

    phase: Phase = "starting"
    supervisor: Process | None = None
    job: Process | None = None
    leader: Process | None = None
    mark: str = ""
    machine: Machine = field(default_factory=lambda: Machine("", ""))
    heartbeat: float = 0.0
    started: str | None = None
    ended: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    address: str | None = None
    iteration: int | None = None
    train_iters: int | None = None
    reason: str | None = None
    stopping: str | None = None
    note: str | None = None  # for the reader, such as why the job waits in a queue
    signs: Signs = field(default_factory=Signs)
    again: Again | None = None  # after a crash: the automatic resume

    @property
    def over(self) -> bool:
        return self.phase in ENDED

    def as_json(self) -> dict[str, Any]:
        value = dataclasses.asdict(self)
        return {**value.pop("machine"), **value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunState:
        """Reads what others wrote. A value of the wrong type counts as missing."""
        phase = value.get("phase")
        return cls(
            **plain_fields(cls, value),
            phase=phase if phase in PHASES else "starting",
            supervisor=Process.from_json(value.get("supervisor")),
            job=Process.from_json(value.get("job")),
            leader=Process.from_json(value.get("leader")),
            machine=Machine(**{"host": "", "boot_id": "", **plain_fields(Machine, value)}),
            signs=Signs.from_json(value.get("signs")),
            again=Again.from_json(value.get("again")),
        )


@dataclass(frozen=True, slots=True)
class JobExit:
    """How the job's main process ended: one of the two is set. `time` in seconds since the epoch."""

    exit_code: int | None
    signal: int | None
    time: float | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> JobExit | None:
        found = cls(**{"exit_code": None, "signal": None, **plain_fields(cls, value)})
        return None if found.exit_code is None and found.signal is None else found
