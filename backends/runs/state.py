"""`state.json`: how a run does, as its supervisor knows it. Anyone may read it; only the supervisor writes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from backends.files import as_seconds
from backends.runs.automatic import Again
from backends.runs.processes import Machine, Process
from backends.runs.signs import Signs

Phase: TypeAlias = Literal["starting", "running", "stopping", "finished", "failed", "lost"]
PHASES = ("starting", "running", "stopping", "finished", "failed", "lost")
ENDED: tuple[Phase, ...] = ("finished", "failed", "lost")


@dataclass(frozen=True, slots=True)
class RunState:
    """One moment of a run. Times are ISO with the zone; `heartbeat` is seconds since the epoch.

    `job` is the trainer (mpirun, sbatch, …); `leader` the wrapper that leads its session and writes its exit code.
    `mark` is what MDK_RUN holds in each process of the job. `reason` says in words why the phase is what it is.
    `stopping` is what a stop is doing, for those who wait.
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
    note: str | None = None  # what its reader should know: that it waits in a queue, and why
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
        """What others wrote, taken as far as it makes sense: a key of the wrong kind counts as missing."""

        def text(key: str) -> str | None:
            return value[key] if isinstance(value.get(key), str) else None

        def number(key: str) -> int | None:
            return value[key] if type(value.get(key)) is int else None

        phase = value.get("phase")
        return cls(
            phase=phase if phase in PHASES else "starting",
            supervisor=Process.from_json(value.get("supervisor")),
            job=Process.from_json(value.get("job")),
            leader=Process.from_json(value.get("leader")),
            mark=text("mark") or "",
            machine=Machine(text("host") or "", text("boot_id") or ""),
            heartbeat=as_seconds(value.get("heartbeat")) or 0.0,
            started=text("started"),
            ended=text("ended"),
            exit_code=number("exit_code"),
            signal=number("signal"),
            address=text("address"),
            iteration=number("iteration"),
            train_iters=number("train_iters"),
            reason=text("reason"),
            stopping=text("stopping"),
            note=text("note"),
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
        if value is None:
            return None
        code, signal, time = (value.get(key) for key in ("exit_code", "signal", "time"))
        if type(code) is not int and type(signal) is not int:
            return None
        return cls(
            code if type(code) is int else None,
            signal if type(signal) is int else None,
            as_seconds(time),
        )
