"""Which MLflow run a patched trainer joins, with servers that answer and with servers that do not."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.tracking import place
from backends.tracking.handover import TRAINING, run_id_problems, with_mlflow_run
from backends.workspace import Workspace

LEFT_OUT = {"MDK_MLFLOW_METRICS": "0"}  # and no run to join
SERVER = {"MLFLOW_TRACKING_URI": "http://user:secret@tracking:5000"}


@pytest.fixture(autouse=True)
def mlflow_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "has_mlflow", lambda: True)


def planned(tmp_path: Path, patched: bool = True) -> tuple[RunPlan, RunFolder, Workspace]:
    workspace = Workspace(tmp_path)
    folder = RunFolder(workspace.runs / "2026-11-30" / "09-32-59")
    folder.path.mkdir(parents=True)
    training = workspace.megatron / TRAINING
    training.parent.mkdir(parents=True)
    training.write_text("MDK_MLFLOW_METRICS" if patched else "")
    return RunPlan("train", "megatron", save=str(tmp_path / "c")), folder, workspace


class Answers(httpx.MockTransport):
    """A server that answers each path with what `answer` gives; `asked` are the paths and what came with them."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.asked: list[tuple[str, Any]] = []

        def handle(request: httpx.Request) -> httpx.Response:
            path = request.url.path.removeprefix("/api/2.0/mlflow/")
            self.asked.append(
                (path, json.loads(request.content) if request.content else dict(request.url.params))
            )
            found = answer(path)
            return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)

        super().__init__(handle)


def good(path: str) -> Any:
    missing = httpx.Response(404, json={"error_code": "RESOURCE_DOES_NOT_EXIST"})
    return {
        "experiments/get-by-name": missing,
        "experiments/create": {"experiment_id": "7"},
        "runs/search": {},
        "runs/create": {"run": {"info": {"run_id": "abc"}}},
    }[path]


def test_a_missing_experiment_and_run_are_created(tmp_path: Path):
    plan, folder, workspace = planned(tmp_path)
    transport = Answers(good)
    handed = with_mlflow_run(plan, folder, workspace, SERVER, transport)
    assert handed.environment == {
        "MLFLOW_RUN_ID": "abc",
        "MLFLOW_EXPERIMENT_NAME": "Megatron-LM",
        "MDK_MLFLOW_METRICS": "0",
    }
    assert json.loads(folder.tracking.read_text())["run_id"] == "abc"
    assert "secret" not in folder.tracking.read_text()
    path, sent = transport.asked[-1]
    assert (path, sent["experiment_id"], sent["run_name"]) == ("runs/create", "7", folder.name)


def refused(path: str) -> Any:
    raise httpx.ConnectError("refused")


@pytest.mark.parametrize(
    "answer",
    [
        refused,
        lambda path: httpx.Response(500, text="<html>"),
        lambda path: httpx.Response(200, text="<html>not MLflow</html>"),
        lambda path: ["odd"],
        lambda path: {"experiment": None},
    ],
)
def test_a_server_that_does_not_answer_only_prevents_the_hand_over(
    tmp_path: Path, answer: Callable[[str], Any]
):
    plan, folder, workspace = planned(tmp_path)
    handed = with_mlflow_run(plan, folder, workspace, SERVER, Answers(answer))
    assert handed.environment == LEFT_OUT
    assert not folder.tracking.exists()


def test_a_server_that_hangs_delays_the_start_only_briefly(tmp_path: Path):
    import socket

    plan, folder, workspace = planned(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        uri = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        begun = time.monotonic()
        handed = with_mlflow_run(plan, folder, workspace, {"MLFLOW_TRACKING_URI": uri})
    assert handed.environment == LEFT_OUT
    assert time.monotonic() - begun < 60.0


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({}, ""),  # the workspace's own database
        ({"MLFLOW_TRACKING_URI": "/scratch/mlruns"}, ""),
        ({**SERVER, "MDK_MLFLOW": "0"}, ""),
        (SERVER, "[mlflow]\nenabled = false\n"),
    ],
)
def test_a_patched_trainer_without_a_run_to_join_leaves_mlflow_alone(
    tmp_path: Path, environment: dict[str, str], settings: str
):
    plan, folder, workspace = planned(tmp_path)
    workspace.settings.write_text(settings)
    transport = Answers(good)
    assert with_mlflow_run(plan, folder, workspace, environment, transport).environment == LEFT_OUT
    assert transport.asked == []


def test_without_mlflow_here_the_trainer_tracks_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    plan, folder, workspace = planned(tmp_path)
    monkeypatch.setattr(place, "has_mlflow", lambda: False)
    assert with_mlflow_run(plan, folder, workspace, SERVER, Answers(good)) == plan


def test_no_server_is_asked_for_a_trainer_without_the_patch(tmp_path: Path):
    plan, folder, workspace = planned(tmp_path, patched=False)
    transport = Answers(good)
    assert with_mlflow_run(plan, folder, workspace, SERVER, transport) == plan
    assert transport.asked == []


STALE = {"MLFLOW_RUN_ID": "0123456789abcdef"}  # of a run that was finished, deleted, or is somebody else's


@pytest.mark.parametrize("uri", [{}, SERVER])
@pytest.mark.parametrize("installed", [True, False])
def test_a_run_id_of_the_environment_is_never_joined_and_the_user_is_warned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: dict[str, str], installed: bool
):
    monkeypatch.setattr(place, "has_mlflow", lambda: installed)
    plan, folder, workspace = planned(tmp_path)
    handed = with_mlflow_run(plan, folder, workspace, {**uri, **STALE}, Answers(good)).environment
    assert handed["MLFLOW_RUN_ID"] == ("abc" if installed and uri else "")
    (problem,) = run_id_problems(plan, workspace, STALE)
    assert problem.severity == "warning" and "0123456789abcdef" in problem.message
    assert run_id_problems(plan, workspace, {}) == []


def test_a_run_id_of_the_environment_does_not_matter_to_a_trainer_without_the_patch(tmp_path: Path):
    plan, folder, workspace = planned(tmp_path, patched=False)
    assert with_mlflow_run(plan, folder, workspace, STALE) == plan
    assert run_id_problems(plan, workspace, STALE) == []
