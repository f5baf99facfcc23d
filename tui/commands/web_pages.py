"""What `mdk-tui mlflow` and `mdk-tui tensorboard` have in common: their options, and what they print."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

import click

from backends.launch.web_pages import Pages, forward, how_to_reach, started
from backends.tracking.web_server import running, stop
from backends.workspace import Workspace
from tui.commands.options import DRY_RUN, Decorator, grouped, json_option


@dataclass(frozen=True, slots=True)
class PageOptions:
    """`stopping`: end what was started, instead of starting. `port`: the one to use where it is free."""

    stopping: bool
    port: int
    dry_run: bool
    as_json: bool


def page_options(usual: int) -> Decorator:
    """Gives a command its `options`, a `PageOptions`. `usual`: the default port."""
    return grouped(
        "options",
        PageOptions,
        click.option("--stop", "stopping", is_flag=True, help="Stop the pages of this workspace."),
        click.option(
            "--port",
            type=click.IntRange(1, 65535),
            default=usual,
            help=f"Default: {usual} if it is free, else another free port.",
        ),
        DRY_RUN,
        json_option("One object."),
    )


def show(workspace: Workspace, pages: Pages, options: PageOptions) -> None:
    """Start the server, or find it, and print where it is. Raises UserError."""
    if options.dry_run:
        click.echo(shlex.join(pages.command(pages.port)))
        return
    if not running(workspace, pages.name):
        click.echo(f"starting {pages.name} …", err=True)
    server = started(workspace, pages)
    if options.as_json:
        value = {
            "url": server.url,
            "shows": server.shows,
            "pid": server.process.pid,
            "ssh": forward(server.port),
        }
        click.echo(json.dumps(value))
    else:
        click.echo(f"{how_to_reach(server)}\nstop it: mdk-tui {pages.name} --stop")


def stop_all(workspace: Workspace, name: str, *, as_json: bool) -> None:
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
