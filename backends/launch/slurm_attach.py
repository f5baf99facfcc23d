"""Finds the log of a Slurm job that was submitted by hand, so that it can be watched."""

from __future__ import annotations

from pathlib import Path

from backends.errors import UserError
from backends.launch.slurm_control import Slurm
from backends.runs.catalog import run_folders
from backends.runs.folder import RunFolder
from backends.text import clean_line
from backends.workspace import Workspace

PREFIX = "slurm:"


def watched_job(workspace: Workspace, word: str, slurm: Slurm) -> RunFolder | Path:
    """The run of this workspace that `slurm:JOBID` names, else the job's log. Raises UserError."""
    job = word.removeprefix(PREFIX)
    if not (job.isascii() and job.isdigit()):
        raise UserError(
            f"{clean_line(job, 60)!r} is no number of a job.", "Write slurm:JOBID; see squeue --me.", status=2
        )
    for folder in run_folders(workspace):
        if folder.batch_job() == job:
            return folder
    state = slurm.ask(job)
    if state is None:
        raise UserError(
            "Slurm does not answer.", "Look at a login node; a log can be watched by name: mdk-tui watch LOG"
        )
    if not state.state:
        raise UserError(state.words(job), "Its log can still be watched by name: mdk-tui watch LOG")
    if state.log is None:
        raise UserError(f"Slurm does not say where job {job} writes.", "Name its log: mdk-tui watch LOG")
    if not Path(state.log).is_file():
        remedy = (
            f"Its log will be {state.log}: try again then."
            if state.waits
            else f"Look for it where the job runs: {state.log}"
        )
        raise UserError(state.words(job), remedy)
    return Path(state.log)
