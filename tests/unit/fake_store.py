"""A store of runs in memory that fails on request: before a call, after it, or in the middle of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from backends.tracking.points import Point
from backends.tracking.store import Opened, Status, StoreError, Wanted

Failure = Literal[
    "", "away", "unheard", "half"
]  # not taken; taken, but the answer is lost; half of a batch taken


class FakeStore:
    """`fails` says for each call (by its number) how it fails. Like MLflow it takes no parameter a second time."""

    def __init__(self, fails: Callable[[int], Failure] = lambda call: "", refuses: str = "") -> None:
        self.fails = fails
        self.refuses = refuses  # a metric that is never taken
        self.calls = 0
        self.runs: dict[str, Wanted] = {}
        self.points: list[Point] = []
        self.tags: dict[str, str] = {}
        self.values: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.told: list[Status] = []
        self.ended: float | None = None
        self.largest = 0

    def _call(self, act: Callable[[], None], half: Callable[[], None] = lambda: None) -> None:
        self.calls += 1
        how = self.fails(self.calls)
        if how == "half":
            half()
        if how in ("", "unheard"):
            act()
        if how:
            raise StoreError(how)

    def open(self, wanted: Wanted) -> Opened:
        self._call(lambda: self.runs.update({wanted.lineage: wanted}))
        return self.look(wanted.lineage)

    def look(self, run_id: str) -> Opened:
        self._call(lambda: None)
        latest: dict[str, int] = {}
        for point in self.points:
            latest[point.key] = max(point.step, latest.get(point.key, point.step))
        return Opened(run_id, dict(self.values), dict(self.tags), latest)

    def send(self, run_id: str, points: Sequence[Point], tags: Mapping[str, str]) -> None:
        def act() -> None:
            if any(point.key == self.refuses for point in points):
                raise StoreError("no such metric", refused=True)
            self.points.extend(points)
            self.tags.update(tags)
            self.largest = max(self.largest, len(points))

        self._call(act, lambda: self.points.extend(points[: len(points) // 2]))

    def parameters(self, run_id: str, values: Mapping[str, str]) -> None:
        def act() -> None:
            if any(self.values.get(name, value) != value for name, value in values.items()):
                raise StoreError("a parameter changes", refused=True)
            self.values.update(values)

        self._call(act)

    def history(self, run_id: str, key: str) -> set[tuple[int, int]]:
        self._call(lambda: None)
        return {(point.step, point.time) for point in self.points if point.key == key}

    def file(self, run_id: str, path: Path) -> None:
        self._call(lambda: self.files.update({path.name: path.read_text()}))

    def text(self, run_id: str, name: str, content: str) -> None:
        self._call(lambda: self.files.update({name: content}))

    def status(self, run_id: str, status: Status, ended: float | None = None) -> None:
        def act() -> None:
            self.told.append(status)
            self.ended = ended

        self._call(act)
