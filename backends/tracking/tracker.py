"""Sends the files of a run to a store of runs in batches: every point exactly once, even if the store fails meanwhile.

A tag at the store records how far it came; the call that brings the points sets it. After a failure it is unknown whether
the batch arrived. Then the store is asked, and only the missing points are sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backends.megatron.alerts import is_main_loss
from backends.megatron.record import Record
from backends.runs.picture import Drawn, svg
from backends.tracking.feed import Batch, Feed
from backends.tracking.lineage import Subject, cut
from backends.tracking.points import LogPoints, Point, TelemetryPoints
from backends.tracking.store import Opened, Status, Store, StoreError

SENT = "mdk.sent"
CUT, CHANGED, REFUSED = "mdk.cut", "mdk.changed", "mdk.refused"
LONGEST_TAG = 4000  # characters
PICTURE, BUCKETS = "loss.svg", 400


@dataclass(frozen=True, slots=True)
class Progress:
    """`sent` and `waiting`: points since this program began. `trouble`: why the last call failed."""

    run_id: str | None
    sent: int
    waiting: int
    trouble: str | None = None


class Tracker:
    """Sends one subject to one store. `step` and `end` raise StoreError while the store is away; call them again later."""

    def __init__(self, subject: Subject, store: Store) -> None:
        self.subject = subject
        self._store = store
        self._log_points = LogPoints(subject.wanted.began)
        self._feeds = [Feed(f"{SENT}.{subject.name}.log", subject.log, self._log_points)]
        if subject.telemetry is not None:
            self._feeds.append(Feed(f"{SENT}.{subject.name}.telemetry", subject.telemetry, TelemetryPoints()))
        self._opened: Opened | None = None
        self._uncertain = {
            feed.name for feed in self._feeds
        }  # feeds whose next batch may have arrived already
        self._told: dict[str, str] = {}  # parameters that the store has
        self._considered = 0  # number of arguments of the log that were compared
        self._sent = 0
        self._finished = False

    @property
    def record(self) -> Record:
        """What the log has said so far."""
        return self._log_points.record

    def progress(self, trouble: str | None = None) -> Progress:
        run_id = self._opened.run_id if self._opened else None
        return Progress(run_id, self._sent, sum(feed.waiting for feed in self._feeds), trouble)

    def step(self) -> int:
        """Send one batch of each file. Returns the number of points."""
        opened = self._opened or self._open()
        count = 0
        for feed in self._feeds:
            feed.fill()
            if batch := feed.batch():
                self._deliver(opened, batch)
                feed.done(batch.last)
                count += len(batch.points)
        self._tell_arguments(opened)
        return count

    def finish_reading(self) -> None:
        """The files are complete: read their last lines, too. Call it after a `step` that had nothing to send."""
        if not self._finished:
            self._finished = True
            for feed in self._feeds:
                feed.finish()

    def end(self, status: Status, ended: float | None) -> None:
        """Send files and picture, and how the run ended (`ended`: s since the epoch). Call it after all points were sent."""
        opened = self._opened or self._open()
        for path in self.subject.files:
            if path.is_file():
                self._store.file(opened.run_id, path)
        if loss := next(filter(is_main_loss, self.record.metrics()), None):
            picture = svg(loss, [Drawn(self.subject.wanted.name, self.record.curves(loss, buckets=BUCKETS))])
            self._store.text(opened.run_id, PICTURE, picture)
        newest = max(feed.newest for feed in self._feeds) / 1000
        self._store.status(opened.run_id, status, ended or newest or None)

    def _open(self) -> Opened:
        opened = self._store.open(self.subject.wanted)
        self._told = dict(opened.parameters)
        self._store.send(opened.run_id, (), self.subject.tags)
        self._store.status(opened.run_id, "RUNNING")
        for feed in self._feeds:
            mark = opened.tags.get(feed.name, "")
            feed.start_after(int(mark) if mark.isdecimal() else 0)
        self._opened = opened
        self._tell(opened, self.subject.parameters)
        return opened

    def _deliver(self, opened: Opened, batch: Batch) -> None:
        points = batch.points
        if batch.feed in self._uncertain:
            points = self._missing(opened.run_id, batch)
        try:
            self._store.send(opened.run_id, points, {batch.feed: str(batch.last)})
        except StoreError as error:
            self._uncertain.add(batch.feed)
            if not error.refused:
                raise
            self._deliver_singly(opened, batch, points)
        self._uncertain.discard(batch.feed)
        self._sent += len(points)

    def _deliver_singly(self, opened: Opened, batch: Batch, points: Sequence[Point]) -> None:
        """Send a batch that the store refused metric by metric, and note the metrics that it refuses."""
        refused: set[str] = set()
        for key in dict.fromkeys(point.key for point in points):
            try:
                self._store.send(opened.run_id, [p for p in points if p.key == key], {})
            except StoreError as error:
                if not error.refused:
                    raise
                refused.add(key)
        tags = {batch.feed: str(batch.last)}
        if refused:
            tags[REFUSED] = ", ".join(sorted(refused))[:LONGEST_TAG]
        self._store.send(opened.run_id, (), tags)

    def _missing(self, run_id: str, batch: Batch) -> tuple[Point, ...]:
        """The points of `batch` that the store does not have."""
        there = self._store.look(run_id)
        mark = there.tags.get(batch.feed, "")
        if mark.isdecimal() and int(mark) >= batch.last:
            return ()
        first = {
            key: min(p.step for p in batch.points if p.key == key) for key in {p.key for p in batch.points}
        }
        doubtful = [key for key, step in first.items() if there.latest.get(key, step - 1) >= step]
        found = {key: self._store.history(run_id, key) for key in doubtful}
        return tuple(p for p in batch.points if (p.step, p.time) not in found.get(p.key, ()))

    def _tell_arguments(self, opened: Opened) -> None:
        """Send the arguments that the log printed, once their list is complete."""
        arguments = self.record.arguments
        if len(arguments) != self._considered and (self.record.iteration is not None or self._finished):
            self._tell(opened, arguments)
            self._considered = len(arguments)

    def _tell(self, opened: Opened, values: Mapping[str, str]) -> None:
        """Send parameters. They cannot change in MLflow, so other values of a later attempt go into a tag."""
        wanted = cut(values)
        new = {name: value for name, value in wanted.items() if name not in self._told}
        try:
            self._store.parameters(opened.run_id, new)
        except StoreError as error:
            if not error.refused:
                raise
            self._told = dict(self._store.look(opened.run_id).parameters)  # the patched trainer was faster
            self._store.parameters(
                opened.run_id, {name: value for name, value in wanted.items() if name not in self._told}
            )
        changed = [f"{n}: {self._told[n]} → {v}" for n, v in wanted.items() if self._told.get(n, v) != v]
        long = [name for name, value in values.items() if len(value) > len(wanted.get(name, value))]
        tags = {f"{CHANGED}.{self.subject.name}": "; ".join(changed), CUT: ", ".join(long)}
        self._store.send(opened.run_id, (), {name: text[:LONGEST_TAG] for name, text in tags.items() if text})
        self._told |= new
