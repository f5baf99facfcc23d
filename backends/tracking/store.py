"""The interface of a store of runs, and its failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from backends.tracking.points import Point

LINEAGE, PARENT = "mdk.lineage", "mlflow.parentRunId"  # tags
Status: TypeAlias = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


class StoreError(Exception):
    """The store did not take something. `refused`: it never will. Otherwise it was away and may have taken it or not."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Opened:
    """A run in the store. `latest`: the highest step of each metric."""

    run_id: str
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    latest: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted run: the one with this `lineage` tag, which is made if necessary. `began`: s since the epoch."""

    lineage: str
    name: str
    began: float
    parent_lineage: str | None = None
    run_id: str | None = None  # the id of the run, if it exists already


class Store(Protocol):
    """Every method may raise StoreError; none waits long."""

    def open(self, wanted: Wanted) -> Opened: ...
    def look(self, run_id: str) -> Opened: ...
    def send(self, run_id: str, points: Sequence[Point], tags: Mapping[str, str]) -> None:
        """At most 1000 points. The tags are set after the points."""
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
