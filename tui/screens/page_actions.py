"""MLflow's and TensorBoard's pages from any screen: started in a thread, then a window says how to reach them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tui.background import in_background
from tui.screens.details import Details

if TYPE_CHECKING:
    from backends.launch.web_pages import Pages
    from tui.app import MdkApp


def show_mlflow(app: MdkApp) -> None:
    def pages() -> Pages | str:
        from backends.launch.web_pages import mlflow_pages

        return mlflow_pages(app.workspace)

    _show(app, "MLflow", pages)


def show_tensorboard(app: MdkApp) -> None:
    """Of the newest run, and of all that save below the same base."""

    def pages() -> Pages | str:
        from backends.launch.web_pages import tensorboard_pages

        return tensorboard_pages(app.workspace, None, shared=True)

    _show(app, "TensorBoard", pages)


def stop_pages(app: MdkApp) -> None:
    """Stop those of this workspace that run on this machine."""

    def work() -> str:
        from backends.tracking.web_server import running, stop

        servers = [server for name in ("mlflow", "tensorboard") for server in running(app.workspace, name)]
        for server in servers:
            stop(server)
        urls = ", ".join(server.url for server in servers)
        return f"stopped: {urls}" if urls else "no pages are being shown"

    in_background(app, work, app.tell, app.tell_failure)


def _show(app: MdkApp, title: str, pages: Callable[[], Pages | str]) -> None:
    """`pages`: what to start, or the address of a server that shows them already."""

    def start() -> tuple[str, str]:
        from backends.launch.web_pages import forward, how_to_reach, started

        found = pages()
        if isinstance(found, str):
            return f"The runs are at {found}", found
        server = started(app.workspace, found)
        return how_to_reach(server), forward(server.port)

    def show(found: tuple[str, str]) -> None:
        text, line = found
        app.push_screen(Details(title, text, line))

    app.tell(f"{title} is being started; that may take half a minute")
    in_background(app, start, show, app.tell_failure)
