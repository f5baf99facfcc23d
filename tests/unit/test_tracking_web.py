"""Pages on the loopback address: started once, found again, stopped; what did not start says why."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from backends.errors import UserError
from backends.files import write_json
from backends.launch.web_pages import event_folder
from backends.runs.folder import RunFolder
from backends.runs.plan import RunPlan
from backends.runs.processes import is_alive
from backends.tracking.place import Place
from backends.tracking.web_commands import mlflow_command, tensorboard_command, tensorboard_folder
from backends.tracking.web_server import WebServer, running, ssh_line, start, stop
from backends.workspace import Workspace


def pages(port: int) -> Sequence[str]:
    return (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port))


def started(workspace: Workspace, shows: str = "runs", limit: float = 300.0) -> WebServer:
    return start(workspace, "pages", shows, pages, port=0, environment=os.environ, limit=limit)


def test_one_is_started_used_again_and_stopped(tmp_path: Path):
    workspace = Workspace(tmp_path)
    server = started(workspace)
    try:
        assert httpx.get(server.url, timeout=120.0).status_code == 200
        assert started(workspace) == server
        other = started(workspace, "other runs")
        assert other.port != server.port
        stop(other)
        assert running(workspace, "pages") == [server]
    finally:
        stop(server)
    assert not is_alive(server.process)
    assert running(workspace, "pages") == []


def test_a_web_server_that_was_killed_is_started_again(tmp_path: Path):
    workspace = Workspace(tmp_path)
    first = started(workspace)
    os.kill(first.process.pid, 9)
    os.waitpid(first.process.pid, 0)
    second = started(workspace)
    stop(second)
    assert second.process != first.process


def test_what_does_not_start_says_why(tmp_path: Path):
    def command(port: int) -> Sequence[str]:
        return (sys.executable, "-c", "import sys; sys.exit('no such store')")

    with pytest.raises(UserError, match="no such store"):
        start(Workspace(tmp_path), "pages", "runs", command, port=0, environment=os.environ, limit=300.0)
    assert running(Workspace(tmp_path), "pages") == []
    with pytest.raises(UserError, match="cannot be started"):
        start(Workspace(tmp_path), "pages", "x", lambda port: ("/no/such/program",), port=0, environment={})


def test_the_forward_names_the_address_by_which_one_came():
    line = ssh_line(6006, {"SSH_CONNECTION": "10.0.0.2 51234 10.0.0.1 22"}, "me", "node")
    assert line == "ssh -N -L 6006:127.0.0.1:6006 me@10.0.0.1"
    assert ssh_line(6006, {}, "me", "node") == "ssh -N -L 6006:127.0.0.1:6006 me@node"


def test_tensorboard_runs_in_the_image_without_the_home_folder(tmp_path: Path):
    image = tmp_path / "pytorch.sif"
    image.touch()
    words = tensorboard_command(tmp_path, "singularity", image, in_image=True)(6006)
    assert words == (
        "singularity", "exec", "--no-home", "-B", str(tmp_path), "--pwd", str(tmp_path), str(image),
        "tensorboard", "--logdir", str(tmp_path), "--host", "127.0.0.1", "--port", "6006",
    )  # fmt: skip
    with pytest.raises(UserError, match="no singularity"):
        tensorboard_command(tmp_path, None, image, in_image=True)


def test_mlflows_pages_are_on_the_loopback_address():
    pytest.importorskip("mlflow")
    words = mlflow_command(Place("sqlite:///x.db", "e", "file:///a"))(5000)
    assert words[words.index("--host") : words.index("--host") + 4] == (
        "--host",
        "127.0.0.1",
        "--port",
        "5000",
    )


def run_of(tmp_path: Path, **plan: object) -> tuple[Workspace, RunFolder]:
    workspace = Workspace(tmp_path)
    folder = RunFolder(workspace.runs / "2026-11-30" / "09-32-59")
    folder.path.mkdir(parents=True)
    save = str(tmp_path / "checkpoints" / "2026-11-30" / "09-32-59")
    write_json(folder.plan_file, RunPlan("train", "megatron", save=save, **plan).as_json())  # pyright: ignore[reportArgumentType]
    return workspace, folder


def test_a_run_has_a_folder_of_its_own_and_shares_the_base(tmp_path: Path):
    workspace, folder = run_of(tmp_path)
    own = tmp_path / "checkpoints" / "2026-11-30" / "09-32-59" / "tensorboard"
    assert tensorboard_folder(folder) == own
    with pytest.raises(UserError, match="There is no folder"):
        event_folder(workspace, folder.name, shared=False)
    own.mkdir(parents=True)
    assert event_folder(workspace, folder.name, shared=False) == own
    assert event_folder(workspace, None, shared=True) == tmp_path / "checkpoints"
    assert event_folder(workspace, str(own), shared=False) == own
    with pytest.raises(UserError, match="There is no folder") as refused:
        event_folder(workspace, str(tmp_path / "nowhere"), shared=False)
    assert refused.value.status == 2


def test_a_plan_that_names_a_folder_has_it(tmp_path: Path):
    _, folder = run_of(tmp_path, arguments=("--tensorboard-dir", "/data/boards"))
    assert tensorboard_folder(folder) == Path("/data/boards")


def test_the_demo_writes_nothing_for_tensorboard(tmp_path: Path):
    _, folder = run_of(tmp_path)
    write_json(folder.plan_file, RunPlan("train", "demo", save="/c").as_json())
    with pytest.raises(UserError, match="writes nothing"):
        tensorboard_folder(folder)
