"""`mdk-tui compare A B …`: runs and logs side by side."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import get_args

import click

from backends.errors import UserError
from backends.files import named_errors, write_atomic
from backends.megatron.record import Axis, Record
from backends.megatron.summary import read_log
from backends.runs.comparison_export import comparison_json, comparison_svg, write_csv
from backends.runs.side_by_side import LOSS, Subject, subjects
from backends.tracking.event_follower import EventFollower
from backends.tracking.event_paths import is_event_path
from backends.workspace import Workspace
from tui.commands.options import json_option


@click.command()
@click.argument("names", metavar="A B …", nargs=-1, required=True)
@click.option("--metric", default=LOSS, show_default=True, help="The metric of the curves.")
@json_option("Figures, differing arguments and thinned curves, as one object.")
@click.option("--csv", "as_csv", is_flag=True, help="Every value, one row per iteration.")
@click.option("--svg", metavar="FILE", help="Write the curves as a picture.")
@click.option(
    "--x",
    type=click.Choice(get_args(Axis)),
    default="iteration",
    show_default=True,
    help="The x axis of the picture.",
)
@click.option("--log", "logarithmic", is_flag=True, help="A logarithmic y axis in the picture.")
@click.pass_obj
def command(
    workspace: Workspace,
    names: tuple[str, ...],
    metric: str,
    as_json: bool,
    as_csv: bool,
    svg: str | None,
    x: Axis,
    logarithmic: bool,
) -> None:
    """Compare runs (DATE/TIME or a path) and logs: curves in one plot, final figures, arguments that differ.

    Without --json, --csv or --svg the comparison opens in the application.
    """  # fmt: skip
    if as_json and as_csv:
        raise UserError("Either --json or --csv goes to standard output.", "Call it twice.", status=2)
    found = subjects(workspace, names)
    if not (as_json or as_csv or svg):
        from tui.application import run_application

        run_application(workspace, screen="compare", compared=tuple(found))
        return
    records = [read(subject) for subject in found]
    if svg:
        picture = comparison_svg(found, records, metric, x=x, log=logarithmic)
        with named_errors(svg, "written", "Name another file."):
            write_atomic(Path(svg).expanduser(), picture)
    if as_json:
        click.echo(json.dumps(comparison_json(found, records, metric)))
    if as_csv:
        write_csv(sys.stdout, found, records)


def read(subject: Subject) -> Record:
    """All that a log, or an event file, says. Raises UserError."""
    with named_errors(subject.log):
        return read_events(subject.log) if is_event_path(subject.log) else read_log(subject.log)


def read_events(path: Path) -> Record:
    follower = EventFollower(path)
    for update in follower.updates():
        if update.caught_up:
            follower.close()
    return follower.record
