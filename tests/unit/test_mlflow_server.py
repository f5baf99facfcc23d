"""A real MLflow server that is killed and restarted during a run: every point arrives exactly once."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from log_lines import arguments, iteration
from mlflow_servers import MlflowServer, mlflow_server
from scripted_jobs import wait_for

from backends.errors import UserError
from backends.files import read_json, write_json
from backends.resources import resource_folder
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.processes import find_process, this_machine
from backends.runs.state import RunState
from backends.tracking.handover import TRAINING, with_mlflow_run
from backends.tracking.lineage import subject_of_run
from backends.tracking.mlflow_sidecar import track_run
from backends.tracking.mlflow_store import PATIENCE, MlflowStore
from backends.tracking.place import Place
from backends.tracking.points import LogPoints
from backends.tracking.sending import Ending
from backends.tracking.store import StoreError
from backends.tracking.tracking_file import known_run_id
from backends.workspace import Workspace
from tui.cli import cli

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs mlflow")
STARTED = "2026-11-30T09:00:00+00:00"


def lines(first: int, last: int) -> str:
    return "".join(
        iteration(n, loss=2.0 + 1 / n, time=f"2026-11-30 09:{n // 60:02d}:{n % 60:02d}")
        for n in range(first, last + 1)
    )


def running(tmp_path: Path) -> tuple[RunFolder, Workspace]:
    """A run whose job and supervisor are this process, so that it runs until its state says otherwise."""
    workspace = Workspace(tmp_path)
    folder = create_run_folder(workspace.runs, datetime(2026, 11, 30, 9, 0, 0))
    save = str(tmp_path / "checkpoints" / folder.name)
    write_json(
        folder.plan_file,
        RunPlan("train", "demo", preset="tiny", arguments=("--lr", "1"), save=save).as_json(),
    )
    folder.command.write_text("#!/bin/sh\n")
    folder.write_state(state())
    return folder, workspace


def state(**changes: object) -> RunState:
    me = find_process(os.getpid())
    known = {
        "phase": "running",
        "supervisor": me,
        "job": me,
        "leader": me,
        "machine": this_machine(),
        "heartbeat": 2e9,
    }
    return RunState(**{**known, "started": STARTED, **changes})  # pyright: ignore[reportArgumentType]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a loaded machine the server answers the hand-over slowly."""
    monkeypatch.setattr("backends.tracking.handover.MOMENT", 120.0)


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow") / "server") as started:
        yield started


@pytest.fixture
def server(module_server: MlflowServer) -> MlflowServer:
    """It runs, even when the test before failed after it had killed it."""
    module_server.start()
    return module_server


def sidecar(folder: RunFolder, workspace: Workspace, server: MlflowServer) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "MLFLOW_TRACKING_URI": server.uri, "MLFLOW_EXPERIMENT_NAME": "tests"}
    command = (
        sys.executable,
        "-m",
        "backends.tracking.mlflow_sidecar",
        str(folder.path),
        str(workspace.root),
    )
    top = Path(__file__).resolve().parents[2]
    with (folder.path / "tracking.log").open("ab") as log:
        return subprocess.Popen(command, cwd=top, env=environment, stdout=log, stderr=log)


def expected(folder: RunFolder) -> list[tuple[str, int, int, float]]:
    points = LogPoints(0.0)
    rows = [*points.feed(folder.log.read_bytes()), *points.finish()]
    return sorted((p.key, p.step, p.time, p.value) for row in rows for p in row.points)


def test_a_server_killed_in_the_middle_has_every_point_once(tmp_path: Path, server: MlflowServer):
    folder, workspace = running(tmp_path)
    folder.log.write_text(arguments(lr=1, seq_length=64) + lines(1, 150))
    program = sidecar(folder, workspace, server)
    try:
        wait_for(lambda: len(server.points()) > 200, 300.0)
        server.kill()
        with folder.log.open("a") as log:
            log.write(lines(151, 220))
        wait_for(lambda: (read_json(folder.tracking) or {}).get("trouble"), 300.0)
        server.start()
        folder.write_state(state(phase="finished", ended="2026-11-30T10:00:00+00:00", exit_code=0))
        assert program.wait(300) == 0, (folder.path / "tracking.log").read_text()
    finally:
        program.kill()
        program.wait()
    assert server.points() == expected(folder)
    ((name, status, started, ended),) = server.rows("SELECT name, status, start_time, end_time FROM runs")
    assert (name, status) == ("2026-11-30/09-00-00", "FINISHED")
    assert (started, ended) == (1796029200000, 1796032800000)
    assert ("seq_length", "64") in server.rows("SELECT key, value FROM params")
    files = {path.name for path in (server.folder / "files").rglob("*") if path.is_file()}
    assert files == {"plan.json", "command.sh", "loss.svg"}
    written = json.loads(folder.tracking.read_text())
    assert written["complete"] and written["trouble"] is None


def test_a_stop_signal_during_a_wait_stops_the_companion():
    """A signal handler would wait for ever for the lock that the interrupted `wait` holds."""
    program = (
        "import os, signal; from backends.tracking.mlflow_sidecar import stop_asked\n"
        "stopped = stop_asked()\n"
        "with stopped._cond: os.kill(os.getpid(), signal.SIGTERM)\n"
        "assert stopped.wait(300)"
    )
    subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).resolve().parents[2], check=True, timeout=300
    )


def test_a_patched_trainer_joins_the_run_of_the_companion(tmp_path: Path, server: MlflowServer):
    folder, workspace = running(tmp_path)
    training = workspace.megatron / TRAINING
    training.parent.mkdir(parents=True)
    training.write_text("MDK_MLFLOW_METRICS")
    environment = {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_EXPERIMENT_NAME": "handed over"}
    plan = dataclasses.replace(folder.plan(), trainer="megatron")
    handed = with_mlflow_run(plan, folder, workspace, environment)
    run_id = handed.environment["MLFLOW_RUN_ID"]
    assert handed.environment == {**environment, "MLFLOW_RUN_ID": run_id, "MDK_MLFLOW_METRICS": "0"}
    again = with_mlflow_run(plan, folder, workspace, environment)
    assert again.environment["MLFLOW_RUN_ID"] == run_id  # a resume finds it
    store = MlflowStore(Place(server.uri, "handed over"), {})
    subject = subject_of_run(folder, workspace, known_run_id(folder, Place(server.uri, "handed over")))
    assert store.open(subject.wanted).run_id == run_id
    deleted = dataclasses.replace(subject.wanted, run_id="0" * 32)
    assert store.open(deleted).run_id == run_id


def test_a_server_that_is_away_is_reported_at_once_and_in_words(monkeypatch: pytest.MonkeyPatch):
    for name in PATIENCE:
        monkeypatch.setenv(name, "")  # so that what the store sets is taken back after the test
    store = MlflowStore(Place("http://me:secret@127.0.0.1:9", "e"))
    with pytest.raises(StoreError, match=r"^nothing listens at http://127\.0\.0\.1:9$") as caught:
        store.look("0" * 32)
    assert not caught.value.refused


TRAINER = """
import argparse, atexit, os, queue, re, sys, threading
is_last_rank = lambda: True
exec(sys.stdin.read())
start_mlflow_run(argparse.Namespace(save="/c/2026-11-30/09-00-00", lr=1, only_here=2))
log_to_mlflow(" iteration 1/ 2 | lm loss: 2.000000E+00 |", 1)
"""


def patched(workspace: Workspace) -> str:
    """The code that the patch adds for MLflow, written to the file in which the launcher looks for it."""
    added = [line[1:] for line in patch_file().read_text().splitlines() if line.startswith("+")]
    code = "\n".join(
        added[added.index("_MLFLOW_QUEUE = None") : added.index("    thread.join(timeout=30)") + 1]
    )
    training = workspace.megatron / TRAINING
    training.parent.mkdir(parents=True)
    training.write_text(code)
    return code


def train(code: str, handed: Mapping[str, str], folder: Path) -> None:
    """Run a patched trainer for one line of its log, in the environment from the launcher."""
    done = subprocess.run(
        (sys.executable, "-c", TRAINER), input=code, env={**os.environ, **handed}, cwd=folder,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, "training goes on" in done.stdout) == (0, False), done.stdout + done.stderr


def test_beside_a_database_the_patch_makes_no_run_and_no_store_of_its_own(tmp_path: Path):
    folder, workspace = running(tmp_path)
    code = patched(workspace)
    shell = {"MLFLOW_RUN_ID": "f" * 32}  # of a run that is long over
    plan = dataclasses.replace(folder.plan(), trainer="megatron")
    handed = with_mlflow_run(plan, folder, workspace, shell)
    (elsewhere := tmp_path / "cwd").mkdir()
    train(code, {**shell, **handed.environment}, elsewhere)
    assert list(elsewhere.iterdir()) == []


def test_the_patch_and_the_companion_write_to_one_run(tmp_path: Path, server: MlflowServer):
    folder, workspace = running(tmp_path)
    code = patched(workspace)
    place = {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_EXPERIMENT_NAME": "both"}
    plan = dataclasses.replace(folder.plan(), trainer="megatron")
    handed = with_mlflow_run(plan, folder, workspace, place).environment
    train(code, handed, tmp_path)
    folder.log.write_text(arguments(lr=1, seq_length=64) + lines(1, 20))
    store = MlflowStore(Place(server.uri, "both"), {})
    where = Place(server.uri, "both")
    over = Ending("FINISHED", 1.8e9)
    assert track_run(folder, workspace, where, store, threading.Event(), patience=30.0, ended=lambda: over)
    run_id = handed["MLFLOW_RUN_ID"]
    assert server.rows(f"SELECT count(*), min(step) FROM metrics WHERE run_uuid = '{run_id}'") == [
        (len(expected(folder)), 1)  # the patch leaves them to the companion
    ]
    told = {
        str(key): value
        for key, value in server.rows(f"SELECT key, value FROM params WHERE run_uuid = '{run_id}'")
    }
    assert (told["lr"], told["only_here"], told["seq_length"]) == ("1", "2", "64")
    assert server.rows(
        "SELECT count(*) FROM runs JOIN experiments USING (experiment_id) WHERE experiments.name = 'both'"
    ) == [(1,)]


def patch_file() -> Path:
    return resource_folder("patches") / "training_mlflow.patch"


def test_any_log_is_tracked_from_the_command_line_once(tmp_path: Path, server: MlflowServer, logs: Path):
    words = ["-w", str(tmp_path), "track", str(logs / "h200-core_r0.8.0-train.log"), "--json"]
    environment = {"MLFLOW_TRACKING_URI": server.uri, "MLFLOW_EXPERIMENT_NAME": "logs"}
    first, second = (
        json.loads(CliRunner().invoke(cli, words, env=environment, catch_exceptions=False).stdout)
        for _ in range(2)
    )
    assert first["run_id"] == second["run_id"]
    assert second["sent"] == 0
    ((count,),) = server.rows(f"SELECT count(*) FROM metrics WHERE run_uuid = '{first['run_id']}'")
    assert count == first["sent"] != 0


def test_a_log_of_another_program_is_not_tracked(tmp_path: Path):
    (tmp_path / "shopping.txt").write_text("apples\npears\n")
    error = CliRunner().invoke(cli, ["-w", str(tmp_path), "track", str(tmp_path / "shopping.txt")]).exception
    assert isinstance(error, UserError) and "nothing that Megatron-LM prints" in error.message
    assert not (tmp_path / "outputs").exists()
