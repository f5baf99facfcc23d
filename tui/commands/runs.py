"""`mdk-tui runs`: lists the runs."""

from __future__ import annotations

import json

import click

from backends.launch.adoption import all_looked_after
from backends.workspace import Workspace
from tui.commands.options import ATTENTION, json_option
from tui.commands.run_text import table


@click.command()
@json_option("A list of objects.")
@click.option("--check", is_flag=True, help="Exit with 3 when a run needs attention.")
@click.pass_obj
def command(workspace: Workspace, as_json: bool, check: bool) -> int:
    """List the runs of the workspace, newest first. A run whose supervisor was killed gets a new one."""
    infos = all_looked_after(workspace)
    if as_json:
        click.echo(json.dumps([info.as_json() for info in infos]))
    elif infos:
        click.echo(table(infos))
    else:
        click.echo(f"There are no runs in {workspace.runs} yet. Start one: mdk-tui demo")
    return ATTENTION if check and any(info.phase in ("failed", "lost") for info in infos) else 0
