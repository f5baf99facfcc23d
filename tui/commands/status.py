"""`mdk-tui status [RUN]`: prints the state of a run."""

from __future__ import annotations

import json

import click

from backends.launch.adoption import looked_after
from backends.runs.catalog import find_run
from backends.runs.folder import RunFolder
from backends.tracking.standing import read_standing
from backends.workspace import Workspace
from tui.commands.options import ATTENTION, json_option
from tui.commands.run_text import details


@click.command()
@click.argument("run", required=False)
@json_option("One object.")
@click.option("--check", is_flag=True, help="Exit with 3 when the run needs attention.")
@click.pass_obj
def command(workspace: Workspace, run: str | None, as_json: bool, check: bool) -> int:
    """Print the state of RUN: DATE/TIME or a path (default: the newest that is running, else the newest)."""
    info = looked_after(find_run(workspace, run), workspace)
    standing = read_standing(RunFolder(info.path))
    if as_json:
        click.echo(json.dumps({**info.as_json(), "tracking": standing.as_json() if standing else None}))
    else:
        click.echo(details(info, mlflow=standing.words() if standing else None))
    return ATTENTION if check and (info.phase in ("failed", "lost") or info.note) else 0
