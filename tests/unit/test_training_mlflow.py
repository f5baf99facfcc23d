"""The code that training_mlflow.patch adds to training.py: the save folder, and MLflow failures that never stop training."""

from __future__ import annotations

import os
import queue
import re
import sys
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from waiting import LIMIT

from backends.resources import resource_folder

LINE = (
    " [2024-09-03 15:56:55] iteration       20/  500000 | consumed samples:        20480 |"
    " elapsed time per iteration (ms): 12137.8 | throughput per GPU (TFLOP/s/GPU): 872.5 | lm loss: 1.064275E+01 |"
    " loss scale: 262144.0 | grad norm: nan | number of nan iterations:   0 |"
)


class Job:
    """The patch's own lines, with torch.distributed of `ranks` ranks that take turns, rank 0 first."""

    def __init__(self, rank: int, told: list[Any], last: bool = True) -> None:
        added = [line[1:] for line in (resource_folder("patches") / "training_mlflow.patch").read_text().splitlines()
                 if re.match(r"[+](?![+])", line)]  # fmt: skip
        source = "\n".join(added)
        source = source[
            source.index("def dated_save_folder") : source.index("    args.save = dated_save_folder")
        ]
        self.exit: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.names: dict[str, Any] = {
            "re": re, "os": os, "queue": queue, "threading": threading, "datetime": datetime, "timedelta": timedelta,
            "atexit": SimpleNamespace(register=lambda function, *arguments: self.exit.append((function, arguments))),
            "print_rank_0": lambda text: None, "is_last_rank": lambda: last,
            "torch": SimpleNamespace(distributed=SimpleNamespace(
                get_rank=lambda: rank, broadcast_object_list=lambda box, src: self.broadcast(rank, box, told))),
        }  # fmt: skip
        exec(source, self.names)

    @staticmethod
    def broadcast(rank: int, box: list[Any], told: list[Any]) -> None:
        if rank == 0:
            told[:] = box
        box[:] = told

    def folder(self, save: str | None) -> str | None:
        return self.names["dated_save_folder"](save)

    def start(self, **arguments: object) -> None:
        self.names["start_mlflow_run"](SimpleNamespace(**arguments))

    def log(self, line: str, step: int) -> None:
        self.names["log_to_mlflow"](line, step)

    def end(self) -> None:
        for function, arguments in self.exit:
            function(*arguments)


class FakeMlflow(ModuleType):
    """Remembers what it was told, or fails at what `broken` names."""

    def __init__(self, *broken: str) -> None:
        super().__init__("mlflow")
        self.broken, self.calls = broken, list[tuple[str, Any]]()

    def _call(self, name: str, value: object) -> None:
        if name in self.broken:
            raise RuntimeError(f"{name} is refused")
        self.calls.append((name, value))

    def start_run(self, **keywords: object) -> None:
        self._call("start_run", keywords)

    def log_params(self, parameters: object) -> None:
        self._call("log_params", parameters)

    def log_metrics(self, metrics: object, step: int) -> None:
        self._call("log_metrics", (step, metrics))

    def end_run(self) -> None:
        self._call("end_run", None)


@pytest.fixture
def mlflow(monkeypatch: pytest.MonkeyPatch) -> FakeMlflow:
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    return fake


def test_all_ranks_save_to_the_folder_that_rank_0_made(tmp_path: Path) -> None:
    told: list[Any] = []
    folders = [Job(rank, told).folder(str(tmp_path)) for rank in range(3)]
    assert len(set(folders)) == 1
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/\d{{4}}-\d\d-\d\d/\d\d-\d\d-\d\d", folders[0] or "")
    assert Path(folders[0] or "").is_dir()


def test_jobs_of_the_same_second_get_folders_of_their_own(tmp_path: Path) -> None:
    folders = {Job(0, []).folder(str(tmp_path)) for _ in range(5)}
    assert len(folders) == 5


@pytest.mark.parametrize(
    "save", [None, "2025-02-06/09-32-12", "./base/2025-02-06/09-32-12", "/base/2025-02-06/09-32-12/"]
)
def test_a_dated_folder_stays_as_it_is(save: str | None) -> None:
    told: list[Any] = ["not asked"]
    assert Job(0, told).folder(save) == save
    assert told == ["not asked"]


def test_one_run_with_parameters_and_metrics_from_the_last_rank(mlflow: FakeMlflow) -> None:
    for last in (False, True):
        job = Job(0, [], last=last)
        job.start(save="./base/2025-02-06/09-32-12", lr=6e-5, note="x" * 9000)
        job.log(LINE, 20)
        job.log(
            " validation loss at iteration 20 on test set | lm loss value: 2.0E+00 | lm loss PPL: 7.4E+00 | ",
            20,
        )
        job.end()
    name = "./base/2025-02-06/09-32-12"
    assert [call for call, _ in mlflow.calls] == [
        "start_run",
        "log_params",
        "log_metrics",
        "log_metrics",
        "end_run",
    ]
    said = [value for _, value in mlflow.calls]
    assert said[0] == {"run_id": None, "run_name": name}
    assert said[1] == {"save": name, "lr": "6e-05", "note": "x" * 500}
    step, metrics = said[2]
    assert step == 20 and str(metrics.pop("grad norm")) == "nan"
    assert metrics == {
        "consumed samples": 20480, "elapsed time per iteration ms": 12137.8, "throughput per GPU TFLOP/s/GPU": 872.5,
        "lm loss": 10.64275, "loss scale": 262144, "number of nan iterations": 0,
    }  # fmt: skip
    assert said[3] == (20, {"test lm loss value": 2.0, "test lm loss PPL": 7.4})


def test_a_run_that_is_given_is_joined(mlflow: FakeMlflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "abc")
    monkeypatch.setenv("MDK_MLFLOW_METRICS", "0")
    job = Job(0, [])
    job.start(save=None)
    job.log(LINE, 20)
    job.end()
    assert [call for call, _ in mlflow.calls] == ["start_run", "log_params", "end_run"]
    assert mlflow.calls[0][1]["run_id"] == "abc"


def test_no_second_run_beside_one_that_it_cannot_join(
    mlflow: FakeMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MDK_MLFLOW_METRICS", "0")
    job = Job(0, [])
    job.start(save=None)
    job.log(LINE, 20)
    job.end()
    assert mlflow.calls == [] and job.exit == []


@pytest.mark.parametrize("broken", ["start_run", "log_params", "log_metrics", "end_run"])
def test_a_refusing_mlflow_costs_one_message(
    mlflow: FakeMlflow, broken: str, capfd: pytest.CaptureFixture[str]
) -> None:
    mlflow.broken = (broken,)
    job = Job(0, [])
    job.start(save="s")
    for step in range(3):
        job.log(LINE, step)
    job.end()
    assert capfd.readouterr().out == f"MLflow: {broken} is refused (training goes on)\n"


def test_without_mlflow_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    job = Job(0, [])
    job.start(save="s")
    job.log(LINE, 1)
    job.end()
    assert "training goes on without it" in capfd.readouterr().out


def test_a_dead_server_does_not_delay_training(mlflow: FakeMlflow, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def wait_for_it(**_: object) -> None:
        answered.wait(LIMIT)

    monkeypatch.setattr(mlflow, "start_run", wait_for_it)
    job = Job(0, [])
    job.start(save="s")
    for step in range(20_000):  # twice what is kept
        job.log(LINE, step)
    assert mlflow.calls == [], "the thread is still waiting, the training is through"
    answered.set()
