"""Prints a resumption and starts it, for `resume` and for `launch --load`."""

from __future__ import annotations

from typing import Any

import click

from backends.launch.resume import resume_problems, start_resumption
from backends.runs.catalog import describe
from backends.runs.resuming import Resumption
from backends.runs.resumption_text import difference_lines
from backends.text import clean_line
from backends.workspace import Workspace
from tui.commands.start_text import print_dry_run, print_problems, print_started


def go_on(resumption: Resumption, workspace: Workspace, *, dry_run: bool, as_json: bool) -> None:
    """Print the checkpoint and the differing arguments, then start the run or print its command. Raises UserError."""
    source = resumption.source
    if source.why:
        click.echo(clean_line(source.why), err=True)
    if not as_json:
        click.echo(f"from iteration {source.iteration} in {clean_line(str(source.save))}", err=True)
        for line in difference_lines(resumption):
            click.echo(line, err=True)
    found = resume_problems(resumption, workspace)
    more = as_json_keys(resumption)
    if dry_run:
        print_dry_run(resumption.plan, workspace, as_json=as_json, found=found, more=more)
        return
    print_problems([problem for problem in found if problem.severity == "warning"])
    print_started(describe(start_resumption(resumption, workspace)), as_json=as_json, more=more)


def as_json_keys(resumption: Resumption) -> dict[str, Any]:
    source = resumption.source
    return {
        "from": {
            "path": str(source.checkpoint),
            "iteration": source.iteration,
            "branch": source.branch,
            "why": source.why,
        },
        "rebuilt": resumption.rebuilt,
        "compared_with": resumption.compared_with,
        "differences": [difference.as_json() for difference in resumption.differences],
    }
