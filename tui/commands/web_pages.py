"""What `mdk-tui mlflow` and `mdk-tui tensorboard` have in common: start, say how to reach it, stop."""

from __future__ import annotations

import getpass
import json
import os
import platform
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from backends.tracking.web_commands import QUIET
from backends.tracking.web_server import WebServer, running, ssh_line, start, stop
from backends.workspace import Workspace

Function = TypeVar("Function", bound=Callable[..., Any])


def page_options(usual: int) -> Callable[[Function], Function]:
    """Adds stopping, port (`usual` where it is free), dry_run and as_json to a command's parameters."""
    port = click.IntRange(1, 65535)
    options = (
        click.option(
            "--stop", "stopping", is_flag=True, help="Stop all that were started for this workspace."
        ),
        click.option("--port", type=port, default=usual, help=f"Default: {usual}, or a free one."),
        click.option("--dry-run", is_flag=True, help="Only print the command."),
        click.option("--json", "as_json", is_flag=True, help="One object."),
    )

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def forward(port: int) -> str:
    return ssh_line(port, os.environ, _user(), platform.node())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return str(os.getuid())


def how_to_reach(server: WebServer) -> str:
    """The words for a terminal, or a window."""
    return f"{server.url} shows {server.shows}\nfrom your own machine: {forward(server.port)}\nthen open {server.url} there"


@dataclass(frozen=True, slots=True)
class Pages:
    """What is to be started: `command` of a port, `port` being the one that is wished for."""

    name: str
    shows: str
    command: Callable[[int], Sequence[str]]
    port: int


def started(workspace: Workspace, pages: Pages) -> WebServer:
    """The server that runs, or a new one. Takes seconds. Raises UserError."""
    return start(
        workspace,
        pages.name,
        pages.shows,
        pages.command,
        port=pages.port,
        environment={**os.environ, **QUIET},
    )


def show(workspace: Workspace, pages: Pages, *, dry_run: bool, as_json: bool) -> None:
    """Start the server, or find it, and say where it is. Raises UserError."""
    if dry_run:
        click.echo(shlex.join(pages.command(pages.port)))
        return
    if not running(workspace, pages.name):
        click.echo(f"starting {pages.name} …", err=True)
    server = started(workspace, pages)
    if as_json:
        value = {
            "url": server.url,
            "shows": server.shows,
            "pid": server.process.pid,
            "ssh": forward(server.port),
        }
        click.echo(json.dumps(value))
    else:
        click.echo(f"{how_to_reach(server)}\nstop it: mdk-tui {pages.name} --stop")


def stop_all(workspace: Workspace, name: str, as_json: bool) -> None:
    """Stop the servers that were started for this workspace on this machine."""
    servers = running(workspace, name)
    for server in servers:
        stop(server)
        if not as_json:
            click.echo(f"{server.url} stopped; it showed {server.shows}")
    if as_json:
        click.echo(json.dumps({"stopped": [server.url for server in servers]}))
    elif not servers:
        click.echo(f"no {name} of this workspace runs on this machine")
