"""`mdk-tui tensorboard [RUN|DIR]`: TensorBoard on the loopback address, and how to reach it through SSH."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from backends.errors import UserError
from backends.launch.image import find_singularity, workspace_image
from backends.runs.catalog import find_run
from backends.runs.folder import NAME
from backends.runs.planning import absolute
from backends.settings import read_settings
from backends.tracking.web_commands import TENSORBOARD_PORT, tensorboard_command, tensorboard_folder
from backends.workspace import Workspace
from tui.commands.web_pages import Pages, page_options, show, stop_all


@click.command()
@click.argument("name", metavar="[RUN|DIR]", required=False)
@click.option("--all", "shared", is_flag=True, help="Every run that saves below the same base.")
@click.option("--in-image", is_flag=True, help="TensorBoard of the image, even if this Python has one.")
@page_options(TENSORBOARD_PORT)
@click.pass_obj
def command(
    workspace: Workspace,
    name: str | None,
    shared: bool,
    in_image: bool,
    stopping: bool,
    port: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show event files in a browser: those of RUN (default: the newest), or all in and below DIR.

    It goes on when this terminal is closed. Without a browser: mdk-tui watch DIR.
    """
    if stopping:
        stop_all(workspace, "tensorboard", as_json)
        return
    show(workspace, pages(workspace, name, shared, in_image, port), dry_run=dry_run, as_json=as_json)


def pages(
    workspace: Workspace, name: str | None, shared: bool, in_image: bool, port: int = TENSORBOARD_PORT
) -> Pages:
    """What to start. Raises UserError."""
    logs = logs_of(workspace, name, shared)
    settings = read_settings(workspace.settings).image
    singularity, image = find_singularity(settings, shutil.which), workspace_image(workspace, settings)
    return Pages(
        "tensorboard", str(logs), tensorboard_command(logs, singularity, image, in_image=in_image), port
    )


def logs_of(workspace: Workspace, name: str | None, shared: bool) -> Path:
    """The folder that `name` means, or with `shared` the base above it. Raises UserError where it is not there."""
    given = absolute(Path(name)) if name and not NAME.fullmatch(name) else None
    run = given is None or (given / "plan.json").exists()
    logs = tensorboard_folder(find_run(workspace, name, training=True)) if run else given
    if logs is None or not logs.is_dir():
        raise UserError(f"There is no folder {logs}.", "It appears when the run logs for the first time.")
    if shared and run:
        dated = next((folder for folder in logs.parents if NAME.fullmatch("/".join(folder.parts[-2:]))), None)
        return dated.parents[1] if dated else logs.parent
    return logs
