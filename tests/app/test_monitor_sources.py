"""The sources of the monitor: merged updates of a follower, and GPU readings from this machine or from a file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lineages import run

from backends.megatron.events import LogLine
from backends.megatron.record import Record
from backends.megatron.summary import read_log
from backends.runs.folder import RunFolder
from backends.runs.processes import Machine, this_machine
from backends.runs.state import Phase
from backends.telemetry.readings import GpuReading, HostReading, Snapshot
from backends.telemetry.wire import encode
from backends.workspace import Workspace
from tui.screens.monitor_curves import RunCurves
from tui.screens.monitor_sources import NOT_SEEN, News, Reading, Readings, Watched

GIB = 1 << 30
START = 1_796_029_200  # s since the epoch: 2026-11-30 09:00 UTC, when the logs of `lineages` begin


def news(numbers: list[int], reset: bool = False) -> News:
    lines = tuple(LogLine(number, None, "info", f"line {number}") for number in numbers)
    return News(lines, Record(), True, False, None, None, reset)


def numbers(found: News) -> list[int]:
    return [line.number for line in found.lines]


def test_a_line_that_came_twice_stands_once():
    assert numbers(news([1, 2]).then(news([2, 3]))) == [1, 2, 3]


def test_merged_updates_keep_a_replacement_of_all_lines():
    merged = news([1, 2]).then(news([901, 902], reset=True)).then(news([903]))
    assert numbers(merged) == [901, 902, 903]
    assert merged.reset


# Readings


def snapshot(second: int, host: str = "node-a") -> Snapshot:
    return Snapshot(float(second), HostReading(host), (GpuReading(0, memory_used=70 * GIB),))


NOW = snapshot(START + 500, "here")


class Live:
    """Readings of this machine, without a driver."""

    def __init__(self) -> None:
        self.closed = False

    def snapshots(self) -> Iterator[Snapshot]:
        yield NOW

    def close(self) -> None:
        self.closed = True


def recorded_run(root: Path, phase: Phase, machine: Machine) -> RunFolder:
    """A run with two nodes' readings in its folder."""
    folder = run(Workspace(root), "2026-11-30/09-00-00", 1, 100)
    state = folder.state()
    assert state is not None
    folder.write_state(replace(state, phase=phase, machine=machine))
    lines = [snapshot(START + s, host) for s in (10, 60) for host in ("node-a", "node-b")]
    folder.telemetry.write_text("".join(json.dumps(encode(line)) + "\n" for line in lines))
    return folder


def of_run(folder: RunFolder) -> Readings:
    return Readings(Watched(folder.name, folder.log, folder), Live)


def test_live_readings_follow_the_recorded_ones_of_a_run_of_this_machine(tmp_path: Path):
    found = list(of_run(recorded_run(tmp_path, "running", this_machine()))())
    assert [s.host.host for s in found[0].snapshots] == ["node-a", "node-b"] and found[0].timeline is not None
    assert found[-1] == Reading((NOW,))


def test_a_run_that_is_over_shows_what_was_last_seen_and_asks_nobody(tmp_path: Path):
    *_, last = of_run(recorded_run(tmp_path, "finished", this_machine()))()
    assert last.note == "last reading 2026-11-30 09:01"
    assert [s.time for s in last.snapshots] == [START + 60] * 2


def test_a_run_on_another_host_is_read_from_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tui.screens.monitor_sources.FAR_LOOK", 0.01)
    folder = recorded_run(tmp_path, "running", Machine("far-away", "another boot"))
    readings = of_run(folder)
    found = readings()
    next(found)
    with folder.telemetry.open("a") as file:
        file.write(json.dumps(encode(snapshot(START + 90, "node-b"))) + "\n")
    assert [s.time for s in next(found).snapshots] == [START + 60, START + 90]
    readings.close()
    assert list(found) == []


def test_a_log_alone_is_asked_for_its_writer_as_long_as_it_grows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tui.screens.monitor_sources.LOOK", 0.01)
    log = tmp_path / "train.log"
    log.write_text("words\n")
    assert list(Readings(Watched("standard input", 0), Live)()) == [Reading(note=NOT_SEEN)]
    readings = Readings(Watched("train.log", log), Live)
    found = readings()
    assert next(found) == Reading(note=NOT_SEEN)
    with log.open("a") as file:
        file.write("more\n")
        file.flush()
        os.utime(log, (START, START))
        assert list(found) == [Reading((NOW,))]
        assert list(Readings(Watched("train.log", log), Live)()) == [Reading((NOW,))]
    closed = Readings(Watched("train.log", log), Live)
    found = closed()
    next(found)
    closed.close()
    assert list(found) == []


def test_recorded_readings_are_plotted_by_time_and_beside_iterations(tmp_path: Path):
    folder = recorded_run(tmp_path, "finished", this_machine())
    curves = RunCurves(read_log(folder.log))
    curves.timeline = next(of_run(folder)()).timeline or curves.timeline
    metric = "node-a gpu 0 memory (GiB)"
    assert metric in curves.metrics() and curves.newest(metric) == 70
    (line,) = curves(metric, "iteration", None, None, 100)
    assert list(line.xs) == [10, 60] and list(line.means) == [70, 70]  # a second an iteration
    (line,) = curves(metric, "time", START + 30, START + 100, 100)
    assert list(line.xs) == [START + 60]
    assert curves(metric, "tokens", None, None, 100) == []
