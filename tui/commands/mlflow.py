"""`mdk-tui mlflow`: MLflow's pages on the loopback address, and how to reach them through SSH."""

from __future__ import annotations

import json
import os

import click

from backends.settings import read_settings
from backends.tracking.place import tracking_place
from backends.tracking.web_commands import MLFLOW_PORT, mlflow_command
from backends.workspace import Workspace
from tui.commands.web_pages import show, stop_all


@click.command()
@click.option("--stop", "stopping", is_flag=True, help="Stop it.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=MLFLOW_PORT,
    help=f"Default: {MLFLOW_PORT}, or a free one.",
)
@click.option("--dry-run", is_flag=True, help="Only print the command.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@click.pass_obj
def command(workspace: Workspace, stopping: bool, port: int, dry_run: bool, as_json: bool) -> None:
    """Show the tracked runs in a browser: start MLflow's pages, or find those that run.

    It goes on when this terminal is closed. Where runs are tracked by a server (MLFLOW_TRACKING_URI, or [mlflow]
    tracking_uri in mdk.toml) that server has the pages.
    """
    if stopping:
        stop_all(workspace, "mlflow", as_json)
        return
    place = tracking_place(read_settings(workspace.settings).mlflow, workspace, os.environ)
    if place.is_server:
        click.echo(json.dumps({"url": place.shown}) if as_json else f"The runs are at {place.shown}")
        return
    workspace.outputs.mkdir(parents=True, exist_ok=True)
    show(workspace, "mlflow", place.shown, mlflow_command(place), port=port, dry_run=dry_run, as_json=as_json)
