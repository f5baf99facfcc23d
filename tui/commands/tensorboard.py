"""`mdk-tui tensorboard [RUN|DIR]`: TensorBoard on the loopback address, and how to reach it through SSH."""

from __future__ import annotations

import click

from backends.launch.web_pages import tensorboard_pages
from backends.tracking.web_commands import TENSORBOARD_PORT
from backends.workspace import Workspace
from tui.commands.web_pages import PageOptions, page_options, show, stop_all


@click.command()
@click.argument("name", metavar="[RUN|DIR]", required=False)
@click.option("--all", "shared", is_flag=True, help="All runs that save below the same base.")
@click.option("--in-image", is_flag=True, help="Use the image's TensorBoard, even if this Python has one.")
@page_options(TENSORBOARD_PORT)
@click.pass_obj
def command(
    workspace: Workspace, name: str | None, shared: bool, in_image: bool, options: PageOptions
) -> None:
    """Start TensorBoard for RUN (default: the newest), or for all event files below DIR, and print how to reach it.

    It stays when this terminal is closed. Without a browser: mdk-tui watch DIR.
    """
    if options.stopping:
        stop_all(workspace, "tensorboard", as_json=options.as_json)
        return
    pages = tensorboard_pages(workspace, name, shared=shared, in_image=in_image, port=options.port)
    show(workspace, pages, options)
