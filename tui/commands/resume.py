"""`mdk-tui resume [CHECKPOINT]`: continue a run, or branch from an earlier iteration."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from backends.launch.adoption import all_looked_after
from backends.launch.resume import placed_resumption
from backends.models.arguments import group_arguments
from backends.runs.resuming import resumption
from backends.runs.resumption_text import REBUILT
from backends.text import clean_line
from backends.workspace import Workspace
from tui.commands.options import DRY_RUN, ask, json_option, megatron_arguments
from tui.commands.resume_text import go_on


@click.command()
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[CHECKPOINT] [-- MEGATRON ARGUMENTS]")
@click.option(
    "--iteration", type=click.IntRange(1), help="Branch from this iteration into a new dated folder."
)
@click.option("--yes", is_flag=True, help="Do not ask before using the flags of a checkpoint from elsewhere.")
@DRY_RUN
@json_option("One object.")
@click.pass_obj
def command(
    workspace: Workspace,
    words: tuple[str, ...],
    iteration: int | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Continue the training from CHECKPOINT: a dated folder, its base, or one iter_N (default: the newest run's folder).

    The tracker file is checked first: training never starts from random weights by accident. The arguments are compared
    with those stored in the checkpoint. A checkpoint that cannot load is refused; a flag that is needed is added.

    If no run of the workspace wrote the checkpoint, its own flags are used, after they are shown and confirmed.
    """
    given = Path(words[0]) if words and not words[0].startswith("--") else None
    changes = megatron_arguments(words[1:] if given else words)
    all_looked_after(workspace)  # or a run whose supervisor was killed is mistaken for one that has ended
    found = placed_resumption(resumption(workspace, given, iteration, changes, datetime.now()), workspace)
    if found.rebuilt and not dry_run and not yes:
        click.echo(REBUILT, err=True)
        for flag, values in group_arguments(found.plan.arguments):
            click.echo(f"  {clean_line(' '.join((flag, *values)), 200)}", err=True)
        ask(
            f"Go on with these ({found.plan.launcher}, ranks: {found.plan.processes})?",
            nothing="Nothing was started",
            remedy="See the flags with --dry-run, correct them after a `--`, then add --yes.",
        )
    go_on(found, workspace, dry_run=dry_run, as_json=as_json)
    return 0
