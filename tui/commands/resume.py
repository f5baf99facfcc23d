"""`mdk-tui resume [CHECKPOINT]`: continue a run, or branch from an earlier iteration."""

from __future__ import annotations

from pathlib import Path

import click

from backends.launch.adoption import all_looked_after
from backends.runs.resuming import resumption
from backends.workspace import Workspace
from tui.commands.resume_text import go_on
from tui.commands.run_text import megatron_arguments, now


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
    """Go on training from CHECKPOINT: a dated folder, its base, or one iter_N (default: the newest run's folder).

    The tracker file is tested first, and the arguments are compared with those stored in the checkpoint: what cannot load
    is refused, a flag that is needed is added and said. Training never starts from random weights unsaid.
    """
    given = Path(words[0]) if words and not words[0].startswith("--") else None
    changes = megatron_arguments(words[1:] if given else words)
    all_looked_after(workspace)  # a run whose supervisor was killed is not mistaken for one that has ended
    found = resumption(workspace, given, iteration, changes, now())
    go_on(found, workspace, dry_run=dry_run, as_json=as_json)
    return 0
