"""MLflow's and TensorBoard's pages from any screen: started in a thread, then a window with the line that leads there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tui.background import in_background

if TYPE_CHECKING:
    from backends.workspace import Workspace
    from tui.app import MdkApp
    from tui.commands.web_pages import Pages


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


@dataclass(frozen=True, slots=True)
class Words:
    """What the window says, and the line of it that is worth copying."""

    text: str
    line: str


def _show(app: MdkApp, title: str, words: Callable[[Workspace], Words]) -> None:
    from tui.screens.details import Details

    def show(found: Words) -> None:
        app.push_screen(Details(title, found.text, found.line))

    app.tell(f"{title} is being started; that may take half a minute")
    in_background(app, lambda: words(app.workspace), show, app.tell_failure)


def _mlflow(workspace: Workspace) -> Words:
    from tui.commands.mlflow import pages

    found = pages(workspace)
    return Words(f"The runs are at {found}", found) if isinstance(found, str) else _started(workspace, found)


def _tensorboard(workspace: Workspace) -> Words:
    from tui.commands.tensorboard import pages

    return _started(workspace, pages(workspace, None, shared=True, in_image=False))


def _started(workspace: Workspace, pages: Pages) -> Words:
    from tui.commands.web_pages import forward, how_to_reach, started

    server = started(workspace, pages)
    return Words(how_to_reach(server), forward(server.port))
