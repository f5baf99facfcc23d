"""MLflow's and TensorBoard's pages from any screen: started in a thread, then a window with the line that leads there."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from tui.background import in_background

if TYPE_CHECKING:
    from textual.app import App

    from backends.workspace import Workspace
    from tui.app import MdkApp


def show_mlflow(app: MdkApp) -> None:
    _show(app, "MLflow", _mlflow)


def show_tensorboard(app: MdkApp) -> None:
    """Of the newest run, and all that save below the same base."""
    _show(app, "TensorBoard", _tensorboard)


def stop_pages(app: MdkApp) -> None:
    """Stop those of this workspace that run on this machine."""

    def work() -> str:
        from backends.tracking.web_server import running, stop

        servers = [server for name in ("mlflow", "tensorboard") for server in running(app.workspace, name)]
        for server in servers:
            stop(server)
        return (
            f"stopped: {', '.join(server.url for server in servers)}"
            if servers
            else "no pages are being shown"
        )

    in_background(app, work, app.tell, app.tell_failure)


def _show(app: MdkApp, title: str, words: Callable[[Workspace], str]) -> None:
    from tui.screens.details import Details
    from tui.widgets.clipboard import copy

    def show(text: str) -> None:
        app.push_screen(Details(title, text, lambda text: app.tell(copy(cast("App[Any]", app), text))))

    app.tell(f"{title} is being started; that may take half a minute")
    in_background(app, lambda: words(app.workspace), show, app.tell_failure)


def _mlflow(workspace: Workspace) -> str:
    from tui.commands.mlflow import pages
    from tui.commands.web_pages import how_to_reach, started

    found = pages(workspace)
    return f"The runs are at {found}" if isinstance(found, str) else how_to_reach(started(workspace, found))


def _tensorboard(workspace: Workspace) -> str:
    from tui.commands.tensorboard import pages
    from tui.commands.web_pages import how_to_reach, started

    return how_to_reach(started(workspace, pages(workspace, None, shared=True, in_image=False)))
