"""The pages of MLflow and TensorBoard: a window says how to reach them, or why they could not be started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until_seen

from backends.launch import web_pages
from backends.launch.web_pages import Pages
from backends.tracking.web_server import running
from backends.workspace import Workspace
from tui.app import MdkApp
from tui.screens.details import Details
from tui.screens.page_actions import show_mlflow, show_tensorboard, stop_pages


async def shown(app: MdkApp, act: Callable[[MdkApp], None]) -> str:
    """The text of the window that `act` leads to."""
    async with app.run_test() as pilot:
        act(app)
        for _ in range(600):
            if isinstance(app.screen, Details):
                return app.screen._text
            await pilot.pause(0.05)
    raise AssertionError("no window came")


async def test_the_window_tells_the_way_and_the_pages_outlive_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def pages(port: int) -> tuple[str, ...]:
        return (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port))

    monkeypatch.setattr(web_pages, "mlflow_pages", lambda workspace: Pages("mlflow", "runs", pages, 0))
    workspace = Workspace(tmp_path)
    text = await shown(MdkApp(workspace), show_mlflow)
    (server,) = running(workspace, "mlflow")
    assert f"ssh -N -L {server.port}:127.0.0.1:{server.port} " in text
    app = MdkApp(workspace)
    async with app.run_test() as pilot:
        stop_pages(app)
        await until_seen(pilot, lambda: not running(workspace, "mlflow"))
    assert running(workspace, "mlflow") == []


async def test_a_server_that_tracks_has_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://user:secret@tracking:5000")
    assert await shown(MdkApp(Workspace(tmp_path)), show_mlflow) == "The runs are at http://tracking:5000"


async def test_without_a_run_there_is_nothing_for_tensorboard(tmp_path: Path):
    assert "There are no runs" in await shown(MdkApp(Workspace(tmp_path)), show_tensorboard)
