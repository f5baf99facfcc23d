"""`mdk-tui stop [RUN]`: end a run, by default after it has saved."""

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
@click.option("--now", is_flag=True, help="End it at once, without saving.")
@click.option(
    "--hung", is_flag=True, help="End at once what hangs, as after a crash: [resume] of mdk.toml counts."
)
@click.option("--force", is_flag=True, help="Save even where that may do harm.")
@json_option("One object, when it has ended.")
@click.pass_obj
def command(workspace: Workspace, run: str | None, now: bool, hung: bool, force: bool, as_json: bool) -> int:
    """End RUN (default: the newest that runs). Waits until no process of it is left.

    Of a run that crashed and is to be resumed by itself, that is called off.

    Without --now the trainer saves first; what takes longer than [stop] limit_minutes of mdk.toml is ended by force.
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
    """Show the progress of a stop; how the run is at its end."""
    info, said = next(states), ""
    for info in states:
        if info.stopping and info.stopping.partition(" (")[0] != said:
            said = info.stopping.partition(" (")[0]
            click.echo(f"{info.run} {info.stopping}", err=as_json)
    return info
