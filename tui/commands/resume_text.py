"""A resumption as lines of text, and its start: the same for `resume` and for `launch --load`."""

from __future__ import annotations

from typing import Any

import click

from backends.launch.resume import resume_problems, start_resumption
from backends.runs.catalog import describe
from backends.runs.difference import VERDICTS, Difference
from backends.runs.resuming import Resumption
from backends.text import clean_line
from backends.workspace import Workspace
from tui.commands.run_text import print_dry_run, print_problems, print_started

NOT_COMPARED = "The arguments stored in the checkpoint cannot be read: they are not compared."
REBUILT = "No run of this workspace wrote this checkpoint: its flags are read from inside it."
CELL = 28  # characters of a value in the table


def go_on(resumption: Resumption, workspace: Workspace, *, dry_run: bool, as_json: bool) -> None:
    """Print where it goes on and what differs; start it, or print the command. Raises UserError where it cannot load."""
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


def difference_lines(resumption: Resumption) -> list[str]:
    """The differences as a table; one line where there are none."""
    if resumption.compared_with is None:
        return [NOT_COMPARED]
    if not resumption.differences:
        return [f"The arguments are those of {clean_line(resumption.compared_with)}."]
    rows = [
        ("ARGUMENT", "STORED", "NOW", "VERDICT"),
        *(_row(difference) for difference in resumption.differences),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    shown = [lines[0].rstrip()]
    for line, difference in zip(lines[1:], resumption.differences, strict=True):
        shown += [line.rstrip(), f"    {clean_line(_words(difference), 400)}"]
    return shown


def _row(difference: Difference) -> tuple[str, str, str, str]:
    values = clean_line(difference.stored, CELL), clean_line(difference.planned, CELL)
    return (clean_line(difference.flag, 60), *values, VERDICTS[difference.verdict])


def _words(difference: Difference) -> str:
    return f"{difference.message} {difference.remedy}".strip()
