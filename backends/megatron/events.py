"""The contents of a log as typed values. `parse --json` prints them as one object a line (see `event_json`).

Consecutive iteration lines with the same keys are one `IterationBatch` of columns, so that a million iterations are not
a million objects. Every other event is one small object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

Number: TypeAlias = float | int
Value: TypeAlias = float | int | str
Severity: TypeAlias = Literal["info", "warning", "error", "critical"]


@dataclass(frozen=True, slots=True)
class IterationBatch:
    """Iteration lines with the same keys, in the order of the log. All sequences have the same length.

    `columns` maps the name as printed ("lm loss", "elapsed time per iteration (ms)"; "(s)" became "(ms)") to numbers:
    `PrintedNumbers`, an array, a `range` if the values rise evenly, or a list if some value is no number.
    NaN and infinities are floats here.
    """

    lines: Sequence[int]
    ranks: Sequence[int | None]
    times: Sequence[str | None]  # ISO, local time of the rank that printed the line
    iterations: Sequence[int]
    train_iters: Sequence[int]
    columns: Mapping[str, Sequence[Value]]

    @property
    def line(self) -> int:
        return self.lines[0]

    def __len__(self) -> int:
        return len(self.lines)


@dataclass(frozen=True, slots=True)
class Validation:
    """One result of an evaluation. `values`: name → number as printed ("lm loss value", "lm loss PPL")."""

    line: int
    rank: int | None
    iteration: int | None
    set: str  # "validation", "test", or the name of a set
    values: Mapping[str, Value]


CheckpointAction: TypeAlias = Literal["saving", "saved", "queued", "loading", "loaded", "missing", "failed"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A step of saving or loading a checkpoint."""

    line: int
    rank: int | None
    action: CheckpointAction
    iteration: int | None
    path: str


@dataclass(frozen=True, slots=True)
class Parameters:
    """Counts (not billions) by the words of the log ("transformer layers", "total", "most loaded shard", …)."""

    line: int
    rank: int | None
    values: Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Memory:
    """MiB by the words of the log: "allocated", "max allocated", … or "weight and optimizer", "activation", "total"."""

    line: int
    rank: int | None
    iteration: int | None
    values: Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Timers:
    """Timers. Some versions print them after every iteration line, so one event holds many: a mapping for each time.

    A mapping goes from a name to (minimum, maximum) over the ranks, in ms. `lines` are the first line of each.
    """

    lines: Sequence[int]
    rank: int | None
    values: Sequence[Mapping[str, tuple[float, float]]]

    @property
    def line(self) -> int:
        return self.lines[0]


@dataclass(frozen=True, slots=True)
class Milestone:
    """A step of the start-up or the end: "distributed", "arguments", "model", "data", "training", "done", "server", …"""

    line: int
    rank: int | None
    name: str
    time: str | None = None  # ISO


@dataclass(frozen=True, slots=True)
class Argument:
    """A row of the argument block that rank 0 prints at the start."""

    line: int
    rank: int | None
    name: str
    value: str  # as printed


@dataclass(frozen=True, slots=True)
class Error:
    """Something that ended or will end the job. The tracebacks of many ranks are one error of the first rank that failed."""

    line: int
    rank: int | None
    kind: str
    message: str  # the raw line, cleaned
    explanation: str
    remedy: str
    ranks: int = 1  # how many ranks reported it
    first_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that needs a look while the job continues."""

    line: int
    rank: int | None
    kind: str
    message: str
    remedy: str
    iteration: int | None = None
    severity: Severity = "warning"


@dataclass(frozen=True, slots=True)
class Exit:
    """A line that says how the job ended. `status` or `signal` are set if the line names them."""

    line: int
    rank: int | None
    reason: str
    status: int | None = None
    signal: int | None = None


Event: TypeAlias = (
    IterationBatch
    | Validation
    | Checkpoint
    | Parameters
    | Memory
    | Timers
    | Milestone
    | Argument
    | Error
    | Alert
    | Exit
)


@dataclass(slots=True)
class LogLine:
    """One line for display: cleaned, without its prefix, clipped. Its repeats are counted, not kept."""

    number: int  # line number of its first occurrence
    rank: int | None
    level: Literal["debug", "info", "warning", "error"]
    text: str
    count: int = 1
    ranks: set[int] = field(default_factory=set[int])
