"""`mdk-tui mlflow`: MLflow's pages on the loopback address, and how to reach them through SSH."""

from __future__ import annotations

import json
import os

import click

from backends.settings import read_settings
from backends.tracking.place import tracking_place
from backends.tracking.web_commands import MLFLOW_PORT, mlflow_command
from backends.workspace import Workspace
from tui.commands.web_pages import Pages, page_options, show, stop_all


@click.command()
@page_options(MLFLOW_PORT)
@click.pass_obj
def command(workspace: Workspace, stopping: bool, port: int, dry_run: bool, as_json: bool) -> None:
    """Show the tracked runs in a browser: start MLflow's pages, or find those that run.

    It goes on when this terminal is closed. Where runs are tracked by a server (MLFLOW_TRACKING_URI, or [mlflow]
    tracking_uri in mdk.toml) that server has the pages.
    """
    if stopping:
        stop_all(workspace, "mlflow", as_json)
        return
    found = pages(workspace, port)
    if isinstance(found, Pages):
        show(workspace, found, dry_run=dry_run, as_json=as_json)
    else:
        click.echo(json.dumps({"url": found}) if as_json else f"The runs are at {found}")


def pages(workspace: Workspace, port: int = MLFLOW_PORT) -> Pages | str:
    """What to start; the address where a server has the pages already. Raises UserError."""
    place = tracking_place(read_settings(workspace.settings).mlflow, workspace, os.environ)
    if place.is_server:
        return place.shown
    workspace.outputs.mkdir(parents=True, exist_ok=True)
    return Pages("mlflow", place.shown, mlflow_command(place), port)
