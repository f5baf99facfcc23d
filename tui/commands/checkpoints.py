"""`mdk-tui checkpoints DIR`: what is there, complete or not, and why."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from backends.errors import UserError
from backends.runs.checkpoints import Checkpoint, checkpoints, read_tracker, save_folders
from backends.text import clean_line


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="A list of objects.")
@click.option("--check", is_flag=True, help="Exit 3 when something needs attention.")
def command(folder: Path, as_json: bool, check: bool) -> int:
    """The checkpoints in DIR (a save folder, or a base with dated folders): format, layout, size, complete or why not."""
    saves = existing_saves(folder)
    found = {save: checkpoints(save) for save in saves}
    if as_json:
        click.echo(json.dumps([c.as_json() for group in found.values() for c in group]))
    else:
        for save, group in found.items():
            _print(save, group)
    troubled = any(
        read_tracker(save).problem or any(not c.complete for c in group) for save, group in found.items()
    )
    return 3 if check and troubled else 0


def existing_saves(folder: Path) -> list[Path]:
    """The save folders below `folder`. Raises UserError when there are none."""
    if not folder.is_dir():
        raise UserError(
            f"There is no folder {clean_line(str(folder))}.", "Give the folder that --save names."
        )
    saves = save_folders(folder)
    if not saves:
        raise UserError(
            f"There is no checkpoint in {clean_line(str(folder))}.",
            "Give the folder that --save names, or a base above its dated folders.",
        )
    return saves


def _print(save: Path, group: list[Checkpoint]) -> None:
    tracker = read_tracker(save)
    click.echo(clean_line(str(save)))
    if tracker.problem:
        click.echo(f"  ! {tracker.problem}")
    for c in group:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(c.modified)) if c.modified else ""
        layout = f"TP {c.tp or '?'} × PP {c.pp or '?'}"
        mark = "tracked" if c.tracked else ""
        verdict = "complete" if c.complete else f"NOT COMPLETE: {c.reason}"
        click.echo(
            f"  {c.iteration!s:>9}  {c.format:<10}  {layout:<13}  {c.size / 1e9:9.3f} GB  {when:<16}  {mark:<7}  {verdict}"
        )
