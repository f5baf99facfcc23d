"""Readings from the recorded driver of two H200s, and their way through JSON and back."""

from __future__ import annotations

import io
import json
import math
import os
from pathlib import Path

import pytest
from fake_nvml import MIB, FakeNvml
from hypothesis import given
from hypothesis import strategies as st

from backends.telemetry.history import TelemetryFile, TelemetryRecorder, newest_by_host
from backends.telemetry.host import HostProbe
from backends.telemetry.nvml import DriverSaysNo, GpuReader, throttling
from backends.telemetry.probe import answers, describe
from backends.telemetry.readings import GpuProcess, GpuReading, HostReading, Snapshot
from backends.telemetry.wire import decode, decode_line, encode


def nobody(pid: int) -> tuple[str | None, str | None]:
    return None, None


@pytest.fixture
def recording(logs: Path) -> Path:
    return logs / "2xh200-nvml.jsonl"


def readings(nvml: FakeNvml, count: int) -> list[tuple[GpuReading, ...]]:
    reader = GpuReader(nvml, nobody)
    reader.open()
    return [reader.read() for _ in range(count)]


def test_units_of_the_driver_become_bytes_and_watts(recording: Path):
    first, _ = readings(FakeNvml(recording), 1)[0]
    assert first.name == "NVIDIA H200"
    assert (first.memory_used, first.memory_total) == (615 * MIB, 143771 * MIB)
    assert (first.power, first.power_limit) == (79.086, 700.0)
    assert (first.temperature, first.sm_clock, first.utilization, first.ecc_errors) == (35, 345, 0, 0)
    assert first.processes == ()
    assert first.throttling == ()  # the clocks are low because nothing runs: no throttling


def test_the_whole_recording_is_replayed_with_its_processes(recording: Path):
    frames = readings(FakeNvml(recording), 12)
    assert [len(gpus) for gpus in frames] == [2] * 12
    assert frames[6][1].processes == (GpuProcess(691, 641728512),)
    powers = [gpu.power for gpus in frames for gpu in gpus if gpu.power is not None]
    assert len(powers) == 24
    assert all(70 < power < 700 for power in powers)


def test_a_missing_reading_is_none_and_not_zero(recording: Path):
    unsupported = {"nvmlDeviceGetUtilizationRates": 3, "nvmlDeviceGetPowerUsage": 3}
    first, _ = readings(FakeNvml(recording, unsupported), 1)[0]
    assert first.utilization is None
    assert first.power is None
    assert first.temperature == 35


def test_an_old_driver_without_the_second_memory_query_is_asked_the_first(recording: Path):
    old = FakeNvml(recording, {f"nvmlDeviceGetMemoryInfo:{0x02000028}": 13})
    assert readings(old, 1)[0][0].memory_used == 615 * MIB
    neither = FakeNvml(
        recording, {f"nvmlDeviceGetMemoryInfo:{0x02000028}": 3, "nvmlDeviceGetMemoryInfo:None": 3}
    )
    assert readings(neither, 1)[0][0].memory_used is None


def test_one_lost_gpu_does_not_hide_the_other(recording: Path):
    lost, healthy = readings(FakeNvml(recording, {"nvmlDeviceGetHandleByIndex:0": 15}), 1)[0]
    assert lost.note is not None and lost.note.startswith("lost")
    assert lost.memory_used is None
    assert healthy.memory_used == 615 * MIB and healthy.note is None


@pytest.mark.parametrize(
    ("code", "words", "gone"),
    [
        (12, "no NVIDIA GPU", True),
        (9, "driver is not loaded", False),
        (18, "until a restart", False),
        (4, "may not ask", False),
        (999, "refuses: NVML error 999", False),
    ],
)
def test_a_refusal_is_reported_in_plain_words(recording: Path, code: int, words: str, gone: bool):
    with pytest.raises(DriverSaysNo, match=words) as refusal:
        GpuReader(FakeNvml(recording, {"nvmlInit": code}), nobody).open()
    assert refusal.value.gone is gone


def test_throttling_is_described_in_words():
    assert throttling(0) == ()
    assert throttling(0x1 | 0x4 | 0x40) == ("power cap", "heat (hardware)")


def test_the_probe_prints_a_line_an_interval_until_nobody_listens(recording: Path):
    out, waits = io.StringIO(), iter([False, False, True])
    assert answers(GpuReader(FakeNvml(recording), nobody), 2.5, out, lambda seconds: next(waits)) == 0
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line["gpus"][0]["power"] for line in lines] == [79.086, 79.017, 79.026]


def test_the_probe_ends_with_the_reason_when_the_driver_refuses(recording: Path):
    out = io.StringIO()
    assert (
        answers(GpuReader(FakeNvml(recording, {"nvmlInit": 12}), nobody), 1, out, lambda seconds: True) == 1
    )
    assert json.loads(out.getvalue())["gone"] is True


def test_a_process_is_described_by_name_and_user_if_it_is_known_here():
    name, user = describe(os.getpid())
    assert name and user
    assert describe(2**22 + 1) == (None, None)


def test_the_first_reading_of_a_host_has_no_share_of_the_cpu():
    probe = HostProbe()
    first = probe.read()
    assert first.cpu_percent is None
    assert first.memory_total is not None and first.memory_used is not None
    assert 0 < first.memory_used < first.memory_total
    sum(range(200_000))
    second = probe.read().cpu_percent
    assert second is None or 0 <= second <= 100


FULL = Snapshot(
    1796017628.5,
    HostReading("node-a", 128, 12.5, 3.0, 10**11, 2 * 10**12),
    (
        GpuReading(
            0, "NVIDIA H200", 5, 10, 99.0, 690.5, 700.0, 61.0, 1980.0,
            (GpuProcess(7, None, "python3", "eve"),), ("power cap",), 2, None,
        ),
        GpuReading(1, note="lost"),
    ),
    None,
)  # fmt: skip


def test_a_snapshot_comes_back_from_json_as_it_went():
    assert decode_line(json.dumps(encode(FULL))) == FULL


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(
            st.sampled_from(["time", "host", "gpus", "gpu_note", "index", "processes", "pid", "memory", "note"]), inner
        ),
    )
)  # fmt: skip
def test_hostile_json_never_raises(value: object):
    snapshot = decode(value)
    assert snapshot is None or math.isfinite(snapshot.time)


def test_wrong_types_and_escape_codes_do_not_get_through():
    value = json.loads(json.dumps(encode(FULL)))
    value["host"]["host"] = "node\x1b]52;c;aGk=\x07-a"
    value["gpus"][0] |= {"memory_used": "lots", "power": float("nan"), "temperature": True}
    snapshot = decode(value)
    assert snapshot is not None
    assert snapshot.host.host == "node-a"
    gpu = snapshot.gpus[0]
    assert (gpu.memory_used, gpu.power, gpu.temperature) == (None, None, None)
    assert decode_line("[" * 100_000) is None


class Scripted:
    """A SnapshotSource that gives what it was told to."""

    def __init__(self, *snapshots: Snapshot | None) -> None:
        self.left = list(snapshots)
        self.closed = False

    def next(self, timeout: float | None = None) -> Snapshot | None:
        assert timeout == 0, "a supervisor never waits for the driver"
        return self.left.pop(0) if self.left else None

    def close(self) -> None:
        self.closed = True


def test_another_host_reads_the_readings_that_a_supervisor_records(tmp_path: Path):
    path = tmp_path / "telemetry.jsonl"
    other = Snapshot(FULL.time + 1, HostReading("node-b"), (), "This machine has no NVIDIA GPU.")
    source = Scripted(None, FULL, other)
    recorder, reader = TelemetryRecorder(path, source), TelemetryFile(path)
    assert reader.read() == []
    recorder.look()
    assert not path.exists()  # nothing was due
    recorder.look()
    assert json.loads(path.read_text())["gpus"][1] == {"index": 1, "note": "lost"}
    assert reader.read() == [FULL]
    recorder.look()
    with path.open("a") as file:
        file.write('garbage\n{"time": 17')
    assert reader.read() == [other]
    assert reader.read() == []
    assert list(newest_by_host([FULL, other, FULL])) == ["node-a", "node-b"]
    recorder.close()
    assert source.closed


def test_a_file_that_was_replaced_by_a_shorter_one_is_read_from_its_start(tmp_path: Path):
    path = tmp_path / "telemetry.jsonl"
    line = json.dumps(encode(FULL)) + "\n"
    path.write_text(line * 3)
    reader = TelemetryFile(path)
    assert len(reader.read()) == 3
    path.write_text(line)
    assert len(reader.read()) == 1


def test_a_full_disk_loses_a_line_and_harms_nothing(tmp_path: Path):
    recorder = TelemetryRecorder(tmp_path / "no such folder" / "telemetry.jsonl", Scripted(FULL))
    recorder.look()
    recorder.look()
    assert not (tmp_path / "no such folder").exists()
