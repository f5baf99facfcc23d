"""`mdk-tui checkpoints DIR`: lists checkpoints, and says which are complete."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backends.errors import UserError
from backends.runs.checkpoints import checkpoints, read_tracker, save_folders
from backends.runs.lineages import Lineage, SavedPoint, with_history
from backends.runs.planning import writers_of
from backends.text import clean_line
from backends.ticks import size_words
from backends.workspace import Workspace
from tui.commands.options import ATTENTION, CHECK, PATH, json_option
from tui.save_words import forecast_words, written_words


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@json_option("A list of objects.")
@CHECK
@click.pass_obj
def command(workspace: Workspace, folder: Path, as_json: bool, check: bool) -> int:
    """List the checkpoints in DIR, a save folder or a base with dated folders: format, layout, size, complete or why not.

    If a run of the workspace saves there, also print how long a save takes, when the next is due, and whether it fits.
    """
    found = [_lineage(workspace, save) for save in existing_saves(folder)]
    points = [point for lineage in found for point in lineage.points]
    if as_json:
        shown = [{**p.checkpoint.as_json(), "loss": p.loss, "seconds": p.seconds} for p in points]
        click.echo(json.dumps(shown))
    else:
        for lineage in found:
            _print(lineage)
    troubled = any(lineage.trouble for lineage in found) or any(not p.checkpoint.complete for p in points)
    short = any(lineage.forecast and lineage.forecast.next_fits is False for lineage in found)
    return ATTENTION if check and (troubled or short) else 0


def existing_saves(folder: Path) -> list[Path]:
    """The save folders below `folder`. Raises UserError when there are none."""
    if not folder.is_dir():
        raise UserError(
            f"There is no folder {clean_line(str(folder))}.", "Give the folder that --save names.", status=2
        )
    saves = save_folders(folder)
    if not saves:
        raise UserError(
            f"There is no checkpoint in {clean_line(str(folder))}.",
            "Give the folder that --save names, or a base above its dated folders.",
            status=2,
        )
    return saves


def _lineage(workspace: Workspace, save: Path) -> Lineage:
    lineage = Lineage(save, tuple(map(SavedPoint, checkpoints(save))), trouble=read_tracker(save).problem)
    runs = list(writers_of(workspace, save))
    return with_history(lineage, runs) if runs else lineage


def _print(lineage: Lineage) -> None:
    click.echo(clean_line(str(lineage.save)))
    if lineage.trouble:
        click.echo(f"  ! {clean_line(lineage.trouble)}")
    for point in lineage.points:
        c = point.checkpoint
        when = written_words(c, "%Y-%m-%d %H:%M")
        mark = "tracked" if c.tracked else ""
        verdict = "complete" if c.complete else f"NOT COMPLETE: {c.reason}"
        took = f"{point.seconds:7.1f} s" if point.seconds is not None else " " * 9
        click.echo(
            f"  {c.iteration!s:>9}  {c.format:<10}  {c.layout!s:<13}  {size_words(c.size):>8}  {took}  {when:<16}  {mark:<7}  {verdict}"
        )
    for words, _ in forecast_words(lineage.forecast) if lineage.forecast else []:
        click.echo(f"  {words}")
