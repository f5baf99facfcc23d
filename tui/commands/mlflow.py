"""`mdk-tui mlflow`: MLflow's pages on the loopback address, and how to reach them through SSH."""

from __future__ import annotations

import json

import click

from backends.launch.web_pages import mlflow_pages
from backends.tracking.web_commands import MLFLOW_PORT
from backends.workspace import Workspace
from tui.commands.web_pages import PageOptions, page_options, show, stop_all


@click.command()
@page_options(MLFLOW_PORT)
@click.pass_obj
def command(workspace: Workspace, options: PageOptions) -> None:
    """Start MLflow's web pages, which show the tracked runs, and print how to reach them.

    They stay when this terminal is closed. If a server tracks the runs (MLFLOW_TRACKING_URI, or tracking_uri in [mlflow]
    of mdk.toml), print its address.
    """
    if options.stopping:
        stop_all(workspace, "mlflow", as_json=options.as_json)
        return
    pages = mlflow_pages(workspace, options.port)
    if isinstance(pages, str):
        click.echo(json.dumps({"url": pages}) if options.as_json else f"The runs are at {pages}")
    else:
        show(workspace, pages, options)
