"""`mdk-tui stop [RUN]`: ends a run, by default after it has saved a checkpoint."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click

from backends.launch.stop import stop_run
from backends.runs.catalog import RunInfo, find_run
from backends.runs.requests import StopWithheld
from backends.settings import read_settings
from backends.workspace import Workspace
from tui.commands.options import json_option


@click.command()
@click.argument("run", required=False)
@click.option("--now", is_flag=True, help="End it now, without saving.")
@click.option(
    "--hung", is_flag=True, help="End a hanging run now; [resume] of mdk.toml applies as after a crash."
)
@click.option("--force", is_flag=True, help="Save even if that may do harm.")
@json_option("One object, when it has ended.")
@click.pass_obj
def command(workspace: Workspace, run: str | None, now: bool, hung: bool, force: bool, as_json: bool) -> int:
    """Save a checkpoint and end RUN (default: the newest that is running). Returns when none of its processes is left.

    If that takes longer than limit_minutes in [stop] of mdk.toml, the processes are killed.

    If RUN crashed and is going to be resumed by itself, the resume is called off.
    """
    folder = find_run(workspace, run)
    limit = read_settings(workspace.settings).stop.limit_minutes * 60

    def stopping(insist: bool) -> Iterator[RunInfo]:
        return stop_run(folder, workspace, now=now, force=insist, hung=hung, limit=limit)

    try:
        info = _show(stopping(force), as_json)
    except StopWithheld as withheld:
        if not sys.stdin.isatty() or not click.confirm(f"{withheld.message}\nStop and save all the same?"):
            raise
        info = _show(stopping(True), as_json)
    if as_json:
        click.echo(json.dumps(info.as_json()))
    else:
        status = f", status {info.exit_code}" if info.exit_code is not None else ""
        click.echo(" ".join(filter(None, (f"{info.run} {info.phase}{status}.", info.reason, info.again))))
    return 0


def _show(states: Iterator[RunInfo], as_json: bool) -> RunInfo:
    """Print the progress of a stop; returns the run as it ended."""
    info, said = next(states), ""
    for info in states:
        if info.stopping and info.stopping.partition(" (")[0] != said:
            said = info.stopping.partition(" (")[0]
            click.echo(f"{info.run} {info.stopping}", err=as_json)
    return info
