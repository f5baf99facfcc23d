"""A real MLflow server, killed and started again in the middle of a run: every point arrives, and none twice."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from log_lines import arguments, iteration
from mlflow_servers import MlflowServer, mlflow_server
from scripted_jobs import wait_for

from backends.files import write_json
from backends.runs.folder import RunFolder, create_run_folder
from backends.runs.plan import RunPlan
from backends.runs.processes import find_process, this_machine
from backends.runs.state import RunState
from backends.tracking.points import LogPoints
from backends.workspace import Workspace

pytestmark = pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs mlflow")
STARTED = "2026-11-30T09:00:00+00:00"


def lines(first: int, last: int) -> str:
    return "".join(
        iteration(n, loss=2.0 + 1 / n, time=f"2026-11-30 09:{n // 60:02d}:{n % 60:02d}")
        for n in range(first, last + 1)
    )


def running(tmp_path: Path) -> tuple[RunFolder, Workspace]:
    """A run whose job and supervisor are this process, so that it runs until it is said to be over."""
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


def test_a_server_that_is_killed_in_the_middle_has_every_point_once(tmp_path: Path):
    folder, workspace = running(tmp_path)
    with mlflow_server(tmp_path / "server") as server:
        folder.log.write_text(arguments(lr=1, seq_length=64) + lines(1, 900))
        program = sidecar(folder, workspace, server)
        try:
            wait_for(lambda: len(server.points()) > 1000, 60.0)
            server.kill()
            with folder.log.open("a") as log:
                log.write(lines(901, 1500))
            wait_for(lambda: json.loads(folder.tracking.read_text())["trouble"], 60.0)
            server.start()
            folder.write_state(state(phase="finished", ended="2026-11-30T10:00:00+00:00", exit_code=0))
            assert program.wait(120) == 0, (folder.path / "tracking.log").read_text()
        finally:
            program.kill()
            program.wait()
        assert server.points() == expected(folder)
        ((name, status, started, ended),) = server.rows("SELECT name, status, start_time, end_time FROM runs")
        assert (name, status) == ("2026-11-30/09-00-00", "FINISHED")
        assert (started, ended) == (1796029200000, 1796032800000)
        assert ("seq_length", "64") in server.rows("SELECT key, value FROM params")
        assert {path.name for path in (server.folder / "files").rglob("*") if path.is_file()} == {
            "plan.json", "command.sh", "loss.svg",
        }  # fmt: skip
    written = json.loads(folder.tracking.read_text())
    assert written["complete"] and written["trouble"] is None
