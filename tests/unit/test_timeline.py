"""Telemetry over time: columns from snapshots, from a file of any length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.telemetry import history
from backends.telemetry.history import TelemetryFile
from backends.telemetry.readings import GpuReading, HostReading, Snapshot
from backends.telemetry.timeline import Timeline
from backends.telemetry.wire import encode

GIB = 1 << 30


def snapshot(second: int, host: str = "node-a", memory: int = 70) -> Snapshot:
    gpu = GpuReading(0, memory_used=memory * GIB, utilization=None, power=690.0)
    return Snapshot(float(second), HostReading(host, memory_used=31 * GIB), (gpu,))


def test_a_metric_for_everything_that_was_said():
    timeline = Timeline()
    timeline.add([snapshot(second, memory=second) for second in (10, 20, 30)])
    assert timeline.metrics() == ["gpu 0 memory (GiB)", "gpu 0 power (W)", "host memory (GiB)"]
    curve = timeline.curve("gpu 0 memory (GiB)", 15, 40, 100)
    assert curve is not None and (curve.xs, curve.means) == ([20, 30], [20.0, 30.0])
    assert timeline.newest("gpu 0 memory (GiB)") == 30
    assert timeline.curve("gpu 7 memory (GiB)", 0, 1, 10) is None


def test_time_does_not_go_back_and_nodes_are_kept_apart():
    timeline = Timeline()
    timeline.add([snapshot(20), snapshot(20), snapshot(10)])
    timeline.add([snapshot(15), snapshot(30)])
    curve = timeline.curve("gpu 0 power (W)", 0, 100, 100)
    assert curve is not None and curve.xs == [20, 30]
    two = Timeline()
    two.add([snapshot(10), snapshot(10, "node-b")])
    assert "node-b gpu 0 power (W)" in two.metrics()


def test_a_long_file_is_read_in_samples_and_then_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "telemetry.jsonl"
    path.write_text("".join(json.dumps(encode(snapshot(second))) + "\n" for second in range(4000)))
    assert len(TelemetryFile(path).history()) == 4000
    monkeypatch.setattr(history, "WHOLE", 10_000)
    monkeypatch.setattr(history, "TAIL", 5_000)
    monkeypatch.setattr(history, "SAMPLES", 100)
    file = TelemetryFile(path)
    times = [found.time for found in file.history()]
    assert 100 < len(times) < 200 and times == sorted(times)
    assert times[0] < 100 and times[-1] == 3999
    assert file.read() == []
    with path.open("a") as more:
        more.write(json.dumps(encode(snapshot(5000))) + "\n")
    assert [found.time for found in file.read()] == [5000.0]
    assert TelemetryFile(tmp_path / "none").history() == []
