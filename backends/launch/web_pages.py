"""MLflow's and TensorBoard's pages of a workspace: what is started for them, and how a browser elsewhere reaches them."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.errors import UserError
from backends.launch.image import find_singularity, workspace_image
from backends.runs.branching import absolute
from backends.runs.catalog import find_run
from backends.runs.folder import NAME
from backends.runs.processes import user_name
from backends.settings import read_settings
from backends.tracking.place import tracking_place
from backends.tracking.web_commands import (
    MLFLOW_PORT,
    QUIET,
    TENSORBOARD_PORT,
    mlflow_command,
    tensorboard_command,
    tensorboard_folder,
)
from backends.tracking.web_server import WebServer, ssh_line, start
from backends.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Pages:
    """What is to be started: `command` for a port, preferably `port`. `shows`: the folder, or the address of the store."""

    name: str
    shows: str
    command: Callable[[int], Sequence[str]]
    port: int


def mlflow_pages(workspace: Workspace, port: int = MLFLOW_PORT) -> Pages | str:
    """What to start; an address where a tracking server already shows the runs. Raises UserError."""
    place = tracking_place(read_settings(workspace.settings).mlflow, workspace, os.environ)
    if place.is_server:
        return place.shown
    workspace.outputs.mkdir(parents=True, exist_ok=True)
    return Pages("mlflow", place.shown, mlflow_command(place), port)


def tensorboard_pages(
    workspace: Workspace,
    name: str | None,
    *,
    shared: bool,
    in_image: bool = False,
    port: int = TENSORBOARD_PORT,
) -> Pages:
    """What to start for the run or folder `name`; the other arguments as in `event_folder`. Raises UserError."""
    logs = event_folder(workspace, name, shared=shared)
    settings = read_settings(workspace.settings).image
    singularity, image = find_singularity(settings, shutil.which), workspace_image(workspace, settings)
    command = tensorboard_command(logs, singularity, image, in_image=in_image)
    return Pages("tensorboard", str(logs), command, port)


def event_folder(workspace: Workspace, name: str | None, *, shared: bool) -> Path:
    """The folder with the event files of the run `name` (None: the newest), or the folder `name` itself.

    `shared`: the base above a run's dated folder, for all runs that save there. Raises UserError where there is none.
    """
    given = absolute(Path(name)) if name and not NAME.fullmatch(name) else None
    if given is not None and not (given / "plan.json").exists():
        if not given.is_dir():
            raise UserError(
                f"There is no folder {given}.", "Name a run, or a folder of event files.", status=2
            )
        return given
    logs = tensorboard_folder(find_run(workspace, name, training=True))
    if not logs.is_dir():
        raise UserError(f"There is no folder {logs}.", "It appears when the run logs for the first time.")
    if not shared:
        return logs
    dated = next((folder for folder in logs.parents if NAME.fullmatch("/".join(folder.parts[-2:]))), None)
    return dated.parents[1] if dated else logs.parent


def started(workspace: Workspace, pages: Pages) -> WebServer:
    """The server that already runs for these pages, or a new one. Takes seconds. Raises UserError."""
    environment = {**os.environ, **QUIET}
    return start(workspace, pages.name, pages.shows, pages.command, port=pages.port, environment=environment)


def forward(port: int) -> str:
    """The `ssh -L` line to run on the machine with the browser."""
    return ssh_line(port, os.environ, user_name(), platform.node())


def how_to_reach(server: WebServer) -> str:
    """In words, for a terminal or a window."""
    return (
        f"{server.url} shows {server.shows}\n"
        f"from your own machine: {forward(server.port)}\nthen open {server.url} there"
    )
