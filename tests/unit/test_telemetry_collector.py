"""The collector with real child processes that behave, hang, babble, crash and are killed."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from waiting import LIMIT

from backends.telemetry.collector import Collector, Patience
from backends.telemetry.wire import decode_line

HASTY = Patience(quiet=0.1, limit=6.0, pause=0.1, longest_pause=0.2, gone=LIMIT, host=0.05)
PATIENT = dataclasses.replace(HASTY, quiet=LIMIT, limit=LIMIT)  # for a probe that may start slowly
ANSWER = 'import json, os, time\nsay = lambda v: print(json.dumps(v), flush=True)\nsay({"gpus": [{"index": 0, "sm_clock": os.getpid()}]})\n'
HANG = ANSWER + "time.sleep(60)"


@pytest.fixture
def collectors() -> Iterator[list[Collector]]:
    made: list[Collector] = []
    yield made
    for collector in made:
        collector.close()


@pytest.fixture
def collect(collectors: list[Collector]):
    def make(program: str, patience: Patience = HASTY) -> Collector:
        collector = Collector(0.05, command=(sys.executable, "-c", program), patience=patience)
        collectors.append(collector)
        return collector

    return make


def until_noted(collector: Collector, words: str) -> None:
    """Until a snapshot's note holds `words`."""
    started = time.monotonic()
    for snapshot in collector.snapshots():
        if words in (snapshot.gpu_note or ""):
            return
        assert time.monotonic() - started < LIMIT, f"last note: {snapshot.gpu_note}"
    raise AssertionError("the collector ended")


def pid_of(collector: Collector) -> int:
    """The process id that the test's probe reports as its clock."""
    for snapshot in collector.snapshots():
        if snapshot.gpus:
            return int(snapshot.gpus[0].sm_clock or 0)
    raise AssertionError("the collector ended")


def wait_for_end(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(LIMIT)


def test_readings_of_the_probe_and_of_the_host_come_together(collect):
    began = time.time()
    snapshot = next(each for each in collect(ANSWER + "time.sleep(60)").snapshots() if each.gpus)
    assert snapshot.gpus[0].index == 0
    assert snapshot.gpu_note is None
    assert snapshot.host.memory_total > 0
    assert began <= snapshot.time <= time.time()


def test_a_probe_that_hangs_is_reported_and_replaced_without_waiting(collect):
    collector = collect(HANG)
    first = pid_of(collector)
    until_noted(collector, "has not answered for")
    until_noted(collector, "did not answer")
    second = pid_of(collector)
    assert second != first
    assert not psutil.pid_exists(first)


def test_a_probe_that_ignores_signals_is_killed(collect):
    ignoring = "import signal\nfor s in (1, 2, 13, 15): signal.signal(s, signal.SIG_IGN)\n"
    collector = collect(ignoring + HANG)
    pid = pid_of(collector)
    collector.close()
    wait_for_end(pid)


def test_a_probe_that_dies_is_started_again(collect):
    collector = collect(ANSWER + "raise SystemExit(3)")
    first = pid_of(collector)
    until_noted(collector, "ended with status 3")
    assert pid_of(collector) != first


def test_a_killed_probe_is_started_again(collect):
    collector = collect(HANG)
    first = pid_of(collector)
    os.kill(first, signal.SIGKILL)
    until_noted(collector, "ended with status -9")
    assert pid_of(collector) != first


def test_a_probe_that_cannot_be_started_is_reported(collectors):
    collector = Collector(0.05, command=("/no/such/program",), patience=HASTY)
    collectors.append(collector)
    until_noted(collector, "could not be started: No such file")


def test_garbage_between_answers_is_passed_over(collect):
    babble = 'import sys\nsys.stdout.buffer.write(b"\\xff\\xfe\\x00 warning: [31m\\n[1,2\\n42\\n{}\\n")\nsys.stdout.flush()\n'
    collector = collect(babble + ANSWER + babble + "time.sleep(60)")
    assert pid_of(collector) > 0


def test_a_line_without_end_is_not_kept_in_memory(collect):
    collector = collect("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    until_noted(collector, "will be started again")


def test_without_a_gpu_the_driver_is_not_asked_repeatedly(collect, tmp_path: Path):
    starts = tmp_path / "starts"
    program = f'open({str(starts)!r}, "a").write("x")\nimport json\nprint(json.dumps({{"note": "no GPU here", "gone": True}}))'
    collector = collect(program, PATIENT)
    notes = [collector.next().gpu_note for _ in range(8)]
    assert notes == ["no GPU here"] * 8
    assert starts.read_text() == "x"


def test_a_poll_never_waits(collect):
    collector = collect("import time\ntime.sleep(60)")
    started = time.monotonic()
    assert collector.next(timeout=0) is None
    assert time.monotonic() - started < 30


def test_close_ends_a_wait_in_another_thread_and_the_child(collect):
    collector = collect(HANG)
    pid = pid_of(collector)
    rest: list[object] = []
    reader = threading.Thread(target=lambda: rest.extend(collector.snapshots()))
    reader.start()
    collector.close()
    reader.join(LIMIT)
    assert not reader.is_alive()
    assert collector.next() is None
    wait_for_end(pid)
    collector.close()


@pytest.fixture
def recorded_driver(tmp_path: Path, logs: Path) -> dict[str, str]:
    """An environment in which the module `pynvml` is the recording of two H200s."""
    (tmp_path / "pynvml.py").write_text(
        f"import sys, pathlib\nsys.path.append({str(Path(__file__).parent)!r})\n"
        f"import fake_nvml\ndriver = fake_nvml.FakeNvml(pathlib.Path({str(logs / '2xh200-nvml.jsonl')!r}))\n"
        "globals().update({name: getattr(driver, name) for name in dir(driver) if name.lower().startswith('nvml')})\n"
    )
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def python(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, *arguments)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_once_prints_one_snapshot_of_the_node(recorded_driver: dict[str, str]):
    answer = python("-m", "backends.telemetry.probe", "--once", environment=recorded_driver)
    assert answer.returncode == 0, answer.stderr
    snapshot = decode_line(answer.stdout)
    assert snapshot is not None
    assert [gpu.memory_total for gpu in snapshot.gpus] == [143771 << 20] * 2
    assert snapshot.host.memory_total == psutil.virtual_memory().total


def test_the_probe_does_not_outlive_its_reader(recorded_driver: dict[str, str]):
    reader = (
        "import os, psutil, signal\n"
        "from backends.telemetry.collector import Collector\n"
        "assert Collector(3600).next().gpus\n"
        "print(psutil.Process().children()[0].pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    answer = python("-c", reader, environment=recorded_driver)
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    wait_for_end(int(answer.stdout))
