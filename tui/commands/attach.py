"""`mdk-tui attach [RUN]`: the monitor on a run."""

from __future__ import annotations

import click

from backends.runs.catalog import find_run
from backends.workspace import Workspace


@click.command()
@click.argument("run", required=False)
@click.pass_obj
def command(workspace: Workspace, run: str | None) -> None:
    """Open the monitor on RUN: DATE/TIME or a path; left out, the newest that runs, else the newest.

    Leaving it leaves the run alone.
    """
    folder = find_run(workspace, run)
    from tui.commands.app import run_application

    run_application(workspace, screen="monitor", run=str(folder.path))
