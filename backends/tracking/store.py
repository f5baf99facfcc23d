"""What tracking asks of a store of runs, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from backends.tracking.points import Point

LINEAGE, PARENT = "mdk.lineage", "mlflow.parentRunId"  # tags
Status: TypeAlias = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


class StoreError(Exception):
    """The store did not take something. `refused`: it never will; otherwise it was away, and may have taken it or not."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Opened:
    """A run as the store has it. `latest`: the highest step of each metric."""

    run_id: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    latest: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which run: the one with this `lineage` tag, else one that is made so. `began`: s since the epoch."""

    lineage: str
    name: str
    began: float
    parent_lineage: str | None = None
    run_id: str | None = None  # made before by somebody else


class Store(Protocol):
    """Every method may raise StoreError, and none waits for long."""

    def open(self, wanted: Wanted) -> Opened: ...
    def look(self, run_id: str) -> Opened: ...
    def send(self, run_id: str, points: Sequence[Point], tags: Mapping[str, str]) -> None:
        """At most 1000 points; the tags are set when the points are in."""
        ...

    def parameters(self, run_id: str, values: Mapping[str, str]) -> None: ...
    def history(self, run_id: str, key: str) -> set[tuple[int, int]]:
        """(step, ms since the epoch) of all points of a metric."""
        ...

    def file(self, run_id: str, path: Path) -> None: ...
    def text(self, run_id: str, name: str, content: str) -> None: ...
    def status(self, run_id: str, status: Status, ended: float | None = None) -> None:
        """`ended`: s since the epoch."""
        ...
