"""`mdk-tui resume [CHECKPOINT]`: continue a run, or branch from an earlier iteration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from backends.errors import UserError
from backends.launch.adoption import looked_after
from backends.launch.commands import problems
from backends.runs.folder import claim_dated_folder
from backends.runs.planning import (
    branch_plan,
    continue_plan,
    make_branch,
    new_save_folder,
    save_folder_of,
    writers_of,
)
from backends.workspace import Workspace
from tui.commands.run_text import launch, megatron_arguments, now, print_dry_run


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[CHECKPOINT] [-- MEGATRON ARGUMENTS]")
@click.option(
    "--iteration", type=click.IntRange(1), help="Branch from this iteration, into a new dated folder."
)
@click.option("--dry-run", is_flag=True, help="Only print the command.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@click.pass_obj
def command(
    workspace: Workspace, words: tuple[str, ...], iteration: int | None, dry_run: bool, as_json: bool
) -> int:
    """Go on training from CHECKPOINT, a dated folder (default: the newest run's).

    The tracker file is tested first: training never starts from random weights unsaid.
    """
    given = Path(words[0]) if words and not words[0].startswith("--") else None
    changes = megatron_arguments(words[1:] if given else words)
    save, why = save_folder_of(workspace, given)
    if why:
        click.echo(why, err=True)
    if iteration is None:
        _check_idle(workspace, save)
        plan = continue_plan(workspace, save, changes)
        if dry_run:
            print_dry_run(plan, workspace, as_json=as_json)
        else:
            launch(plan, workspace, as_json=as_json)
        return 0
    branch = new_save_folder(save.parents[1], now())
    plan = branch_plan(workspace, save, iteration, branch, changes)
    if dry_run:
        found = problems(
            dataclasses.replace(plan, load=str(save)), workspace
        )  # the branch does not exist yet
        print_dry_run(plan, workspace, as_json=as_json, found=found)
        return 0
    branch = claim_dated_folder(save.parents[1], now())
    make_branch(save, iteration, branch)
    launch(dataclasses.replace(plan, load=str(branch), save=str(branch)), workspace, as_json=as_json)
    return 0


def _check_idle(workspace: Workspace, save: Path) -> None:
    """Two runs that save into one folder overwrite each other's checkpoints. Raises UserError."""
    for folder in writers_of(workspace, save):
        info = looked_after(folder, workspace)
        if not info.over:
            raise UserError(
                f"{info.run} still {info.phase if info.phase != 'running' else 'runs'} and saves into {save}.",
                f"Stop it first: mdk-tui stop {info.run}",
            )
