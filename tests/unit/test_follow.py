"""Following real files and pipes: growing, truncated, replaced, missing, half-written, closed from another thread."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from log_lines import LOGS, WORLD, iteration, iterations
from test_record import contents, record_of

from backends.megatron import follow
from backends.megatron.folding import MOST
from backends.megatron.follow import BytesSource, FileSource, Follower, PipeSource, Update
from backends.megatron.sources import LogSource

PATIENCE = 180.0  # s


class Watching:
    """A follower in a thread; what it brings is waited for."""

    def __init__(self, source: LogSource) -> None:
        self.follower = Follower(source)
        self.seen: list[Update] = []
        self.texts: dict[int, str] = {}
        self._updates: queue.Queue[Update | None] = queue.Queue()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        for update in self.follower.updates():
            self._updates.put(update)
        self._updates.put(None)

    def until(self, condition: Callable[[Update], bool]) -> Update:
        """The first update from now on that fulfils `condition`."""
        while (update := self._updates.get(timeout=PATIENCE)) is not None:
            self.seen.append(update)
            if update.reset:
                self.texts.clear()
            self.texts.update((line.number, line.text) for line in update.lines)
            if condition(update):
                return update
        raise AssertionError("the log ended")

    def until_iteration(self, number: int) -> Update:
        return self.until(lambda update: update.record.iteration == number)

    def end(self) -> None:
        while self._updates.get(timeout=PATIENCE) is not None:
            pass
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()

    def close(self) -> None:
        self.follower.close()
        self.end()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


@pytest.fixture
def watch() -> Iterator[Callable[[LogSource], Watching]]:
    watchings: list[Watching] = []

    def start(source: LogSource) -> Watching:
        watchings.append(Watching(source))
        return watchings[-1]

    yield start
    for watching in watchings:
        watching.follower.close()
        watching.thread.join(PATIENCE)
        assert not watching.thread.is_alive()


Watch = Callable[[LogSource], Watching]
LongLog = tuple[Path, Iterator[Update]]


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_finished_log_is_read_at_once_and_its_lines_are_numbered(watch: Watch) -> None:
    path = LOGS / "h200-core_r0.8.0-train.log"
    watching = watch(FileSource(path))
    update = watching.until(lambda update: update.caught_up)
    assert contents(update.record)["rows"] == contents(record_of(path.read_bytes()))["rows"]
    lines = path.read_text().splitlines()
    assert all(text.strip() in lines[number - 1] for number, text in watching.texts.items())
    assert all(len(update.lines) <= MOST for update in watching.seen)


def test_a_growing_file_is_followed_and_half_a_line_waits_for_its_other_half(log: Path, watch: Watch) -> None:
    log.write_text(iterations(1, 5))
    watching = watch(FileSource(log))
    watching.until_iteration(5)
    line = iteration(6)
    append(log, line[:70])
    append(log, line[70:])
    watching.until_iteration(6)
    append(log, iteration(7)[:80])
    append(log, iteration(7)[80:] + iteration(8))
    update = watching.until_iteration(8)
    assert update.record.iterations_seen == 8


def test_a_missing_file_is_reported_and_waited_for(log: Path, watch: Watch) -> None:
    watching = watch(FileSource(log))
    update = watching.until(lambda update: update.note is not None)
    assert update.note == f"{log} is not there (yet)."
    log.write_text(iterations(1, 2))
    assert watching.until_iteration(2).caught_up


@pytest.mark.parametrize("how", ["truncated", "replaced", "rotated"])
def test_a_truncated_or_replaced_log_is_another_attempt(log: Path, watch: Watch, how: str) -> None:
    log.write_text(iterations(1, 50))
    watching = watch(FileSource(log))
    watching.until_iteration(50)
    if how == "truncated":
        log.write_text(iterations(51, 53))
    elif how == "replaced":
        fresh = log.with_suffix(".new")
        fresh.write_text(iterations(51, 53))
        fresh.replace(log)
    else:
        log.rename(log.with_suffix(".1"))
        log.write_text(iterations(51, 53))
    update = watching.until_iteration(53)
    assert update.note == follow.CUT
    assert [(s.first, s.last) for s in update.record.segments] == [(1, 50), (51, 53)]
    assert watching.texts[51].startswith(" [2026-11-30 09:00:51]")


def test_lines_written_before_a_rotation_are_not_lost(log: Path, watch: Watch) -> None:
    log.write_text(iterations(1, 3))
    watching = watch(FileSource(log))
    watching.until_iteration(3)
    append(log, iterations(4, 6))
    log.rename(log.with_suffix(".1"))
    log.write_text(iterations(7, 9))
    update = watching.until_iteration(9)
    assert update.record.iterations_seen == 9


def test_a_removed_file_is_reported_and_its_values_stay(log: Path, watch: Watch) -> None:
    log.write_text(iterations(1, 3))
    watching = watch(FileSource(log))
    watching.until_iteration(3)
    log.unlink()
    update = watching.until(lambda update: update.note is not None)
    assert update.record.iteration == 3


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_path_that_is_no_log_is_reported_and_does_not_hang(log: Path, watch: Watch, kind: str) -> None:
    log.mkdir() if kind == "folder" else os.mkfifo(log)
    watching = watch(FileSource(log))
    assert "cannot be read" in (watching.until(lambda update: update.note is not None).note or "")
    watching.close()


def test_a_pipe_is_followed_until_its_writer_is_gone(watch: Watch) -> None:
    reader, writer = os.pipe()
    watching = watch(PipeSource(reader))
    os.write(writer, iterations(1, 3).encode())
    assert not watching.until_iteration(3).ended
    os.write(writer, iteration(4).rstrip("\n").encode())
    os.close(writer)
    update = watching.until(lambda update: update.ended)
    assert update.record.iteration == 4
    watching.end()
    os.close(reader)


def test_a_flood_through_a_pipe_keeps_every_value_and_shows_few_lines(watch: Watch) -> None:
    reader, writer = os.pipe()
    watching = watch(PipeSource(reader))
    data = iterations(1, 40_000).encode()
    with os.fdopen(writer, "wb") as file:
        file.write(data)
    update = watching.until(lambda update: update.ended)
    assert update.record.iterations_seen == 40_000
    assert update.record.value_at("lm loss", 31_234) == pytest.approx(2 + 1 / 31_234, abs=1e-6)
    assert all(len(update.lines) <= MOST for update in watching.seen)
    assert max(watching.texts) == 40_000
    watching.end()
    os.close(reader)


def test_a_slow_stream_without_a_pause_is_not_held_back(watch: Watch) -> None:
    """Lines that come faster than the reader looks must not pile up unseen."""
    reader, writer = os.pipe()
    watching = watch(PipeSource(reader))
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.wait(0.002):
            number += 1
            os.write(writer, iteration(number).encode())
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    update = watching.until(lambda update: (update.record.iteration or 0) > 1)
    stop.set()
    thread.join()
    assert not update.ended
    watching.until(lambda update: update.ended)
    watching.end()
    os.close(reader)


@pytest.mark.parametrize("kind", ["file", "missing", "pipe"])
def test_closing_wakes_a_reader_that_waits(
    log: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(follow, "SETTLE", 10 * PATIENCE)  # the reader would not look up by itself in time
    reader, writer = os.pipe()
    if kind == "file":
        log.write_text(iterations(1, 2))
    watching = watch(PipeSource(reader) if kind == "pipe" else FileSource(log))
    if kind == "file":
        watching.until_iteration(2)
    watching.close()
    watching.follower.close()
    os.close(reader)
    os.close(writer)


def test_closing_releases_every_descriptor(log: Path) -> None:
    log.write_text(iterations(1, 2))
    reader, writer = os.pipe()
    before = open_descriptors()
    for source in (FileSource(log), PipeSource(reader)):
        watching = Watching(source)
        watching.close()
    assert open_descriptors() == before
    os.close(reader)
    os.close(writer)


def test_the_tail_of_a_long_log_is_read_first_and_the_final_record_is_complete(
    log: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = WORLD + iterations(1, 3000) + "half time\n" + WORLD + iterations(2001, 4000)
    log.write_text(text)
    monkeypatch.setattr(follow, "TAIL", 100_000)
    monkeypatch.setattr(follow, "STEP", 30_000)
    watching = watch(FileSource(log))
    first = watching.until(lambda update: True)
    assert (first.record.iteration, first.caught_up) == (4000, False)
    assert first.record.iterations_seen < 500
    whole = watching.until(lambda update: update.caught_up)
    assert contents(whole.record) == contents(record_of(text))
    assert whole.record is watching.follower.record
    lines = text.splitlines()
    assert len(watching.texts) > MOST
    assert all(lines[number - 1] == text for number, text in watching.texts.items())
    append(log, iteration(4001))
    update = watching.until_iteration(4001)
    assert update.record is whole.record
    assert update.lines[0].number == len(lines) + 1


@pytest.fixture
def long_log(log: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LongLog]:
    """A log whose tail was just read, and whose history is about to be."""
    log.write_text(iterations(1, 2000))
    monkeypatch.setattr(follow, "TAIL", 10_000)
    monkeypatch.setattr(follow, "STEP", 20_000)
    follower = Follower(FileSource(log))
    updates = follower.updates()
    assert next(updates).record.iteration == 2000
    yield log, updates
    follower.close()
    assert list(updates) == []


def test_a_log_that_grows_during_its_history_loses_nothing(
    long_log: LongLog,
) -> None:
    log, updates = long_log
    append(log, iterations(2001, 2005))
    live = next(update for update in updates if update.record.iteration == 2005)
    assert live.record.iterations_seen < 100  # still the tail's
    assert not live.caught_up
    whole = next(update for update in updates if update.caught_up)
    assert contents(whole.record) == contents(record_of(iterations(1, 2005)))


def test_a_log_truncated_during_its_history_continues_from_the_tail(long_log: LongLog) -> None:
    log, updates = long_log
    log.write_text(iterations(1, 3))
    update = next(update for update in updates if update.record.iteration == 3)
    assert update.note == follow.CUT
    assert [s.last for s in update.record.segments] == [2000, 3]


def test_a_last_error_is_shown_when_the_log_pauses(log: Path, watch: Watch) -> None:
    text = (LOGS / "2xh200-oom-then-hangs.log").read_text()
    log.write_text(text + "\n")
    watching = watch(FileSource(log))
    update = watching.until(lambda update: bool(update.record.all_errors()))
    assert update.record.all_errors()[0].kind == "out-of-memory"


def test_a_last_line_without_a_newline_is_shown_when_the_log_pauses(log: Path, watch: Watch) -> None:
    log.write_text(f"training ...\n{iteration(10).rstrip()}")
    watching = watch(FileSource(log))
    watching.until_iteration(10)
    with log.open("a") as file:
        file.write(f"\n{iteration(20)}RuntimeError: CUDA out of mem")
    watching.until_iteration(20)
    watching.until(lambda update: 4 in watching.texts)
    assert watching.texts[4] == "RuntimeError: CUDA out of mem"
    with log.open("a") as file:
        file.write("ory. Tried to allo")
    update = watching.until(lambda update: bool(update.record.pending))
    assert update.record.pending[0].line == 4
    with log.open("a") as file:
        file.write("cate 2 GiB\n")
    watching.until(lambda update: watching.texts[4].endswith("2 GiB"))
    assert sorted(watching.texts) == [1, 2, 3, 4]


def test_bytes_are_a_log_that_ends() -> None:
    updates = list(Follower(BytesSource(iterations(1, 900).encode(), chunk=1000)).updates())
    assert updates[-1].ended
    assert updates[-1].record.iterations_seen == 900


def test_polling_a_quiet_file_costs_little(log: Path) -> None:
    log.write_text(iterations(1, 2))
    source = FileSource(log)
    source.read(0.0)
    before = time.thread_time()
    assert source.read(2.0) is None
    assert time.thread_time() - before < 0.02
    source.close()
    assert source.read(0.0) == b""
