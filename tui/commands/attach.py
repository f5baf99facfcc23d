"""`mdk-tui attach [RUN]`: opens the monitor on a run."""

from __future__ import annotations

import click

from backends.runs.catalog import find_run
from backends.runs.folder import RunFolder
from backends.workspace import Workspace


@click.command()
@click.argument("run", required=False)
@click.pass_obj
def command(workspace: Workspace, run: str | None) -> None:
    """Open the monitor on RUN: DATE/TIME, a path, or slurm:JOBID (default: the newest that is running, else the newest).

    Leaving the monitor does not touch the run. slurm:JOBID is a job that was submitted by hand: its log is watched.
    """
    if run is not None and run.startswith("slurm:"):
        from backends.launch.slurm_attach import watched_job
        from backends.launch.slurm_control import SlurmControl

        found = watched_job(workspace, run, SlurmControl())
    else:
        found = find_run(workspace, run)
    from tui.application import run_application

    if isinstance(found, RunFolder):
        run_application(workspace, screen="monitor", run=str(found.path))
    else:
        run_application(workspace, screen="monitor", source=found)
