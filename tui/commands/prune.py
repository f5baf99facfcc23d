"""`mdk-tui prune DIR --keep N`: removes old checkpoints, after showing which."""

from __future__ import annotations

import json
import time
from pathlib import Path

import click

from backends.runs.pruning import Pruning, needed_by_branches, plan_pruning, prune
from backends.text import clean_line
from backends.ticks import size_words
from backends.workspace import Workspace
from tui.commands.checkpoints import existing_saves
from tui.commands.options import PATH, ask, json_option


@click.command()
@click.argument("folder", metavar="DIR", type=PATH)
@click.option(
    "--keep", type=click.IntRange(1), required=True, help="Complete checkpoints to keep in each save folder."
)
@click.option(
    "--branches",
    type=PATH,
    help="Also look for branches below this base.",
)
@click.option("--yes", is_flag=True, help="Remove what is shown without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@json_option("What is removed and what is kept, as JSON.")
@click.pass_obj
def command(
    workspace: Workspace,
    folder: Path,
    keep: int,
    branches: Path | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Remove the oldest checkpoints in DIR and keep the newest N complete ones.

    A checkpoint that the tracker file names, that a branch links to, or that is incomplete is never removed.
    """
    saves = existing_saves(folder)
    bases = [branches] if branches else []
    linked = needed_by_branches(workspace, saves, *bases)
    plans = [plan_pruning(save, keep, linked) for save in saves]
    if as_json:
        click.echo(json.dumps([_as_json(plan) for plan in plans]))
    else:
        for plan in plans:
            _print(plan)
    doomed = [checkpoint for plan in plans for checkpoint in plan.remove]
    if dry_run or not doomed:
        return 0
    if not yes:
        ask(f"Remove {len(doomed)} checkpoints?", nothing="Nothing was removed", remedy="Add --yes.")
    removed = 0
    linked = needed_by_branches(workspace, saves, *bases)  # again: the user may have thought for a while
    for plan in plans:
        if plan.remove:
            removed += len(prune(plan, time.strftime("%Y-%m-%dT%H:%M:%S"), linked))
    if removed < len(doomed):
        click.echo(f"{len(doomed) - removed} were kept: a tracker file or a branch now needs them.", err=True)
    return 0


def _print(plan: Pruning) -> None:
    click.echo(clean_line(plan.save))
    for checkpoint in plan.remove:
        click.echo(f"  remove {checkpoint.iteration!s:>9}  {size_words(checkpoint.size):>8}")
    for checkpoint, why in plan.kept:
        click.echo(f"  keep   {checkpoint.iteration!s:>9}  {size_words(checkpoint.size):>8}  {why}")
    click.echo(f"  frees {size_words(plan.freed)}")


def _as_json(plan: Pruning) -> dict[str, object]:
    return {
        "save": plan.save,
        "remove": [c.as_json() for c in plan.remove],
        "keep": [{**c.as_json(), "why": why} for c, why in plan.kept],
        "freed": plan.freed,
    }
