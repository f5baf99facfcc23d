"""`mdk-tui serve CHECKPOINT`: starts a text server, which is a run like any other."""

from __future__ import annotations

import json
from pathlib import Path

import click

from backends.inference.readiness import until_ready
from backends.inference.serving import serve_plan
from backends.launch.placement import Placement
from backends.runs.catalog import describe
from backends.runs.checkpoint_choice import checkpoint_meant
from backends.runs.ports import free_port
from backends.workspace import Workspace
from tui.commands.options import DRY_RUN, MEGATRON_ARGUMENTS, PATH, json_option
from tui.commands.placement_options import placement_options
from tui.commands.start_text import launch, print_dry_run


@click.command()
@click.argument("checkpoint", type=PATH)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Default: 8028 if it is free, else another free port."
)
@click.option("--iteration", type=click.IntRange(1), help="The iteration to serve (default: the newest).")
@click.option(
    "--until-ready", "until_ready_too", is_flag=True, help="Wait until it can answer; exit 1 if it fails."
)
@placement_options
@DRY_RUN
@json_option("One object.")
@MEGATRON_ARGUMENTS
@click.pass_obj
def command(
    workspace: Workspace,
    checkpoint: Path,
    port: int | None,
    iteration: int | None,
    until_ready_too: bool,
    wish: Placement,
    dry_run: bool,
    as_json: bool,
    arguments: tuple[str, ...],
) -> int:
    """Start a text server on CHECKPOINT, a dated folder or one iter_N in it. It listens on 127.0.0.1.

    The model's flags come from the run that wrote the checkpoint, else from the checkpoint. The server answers after it
    has loaded the checkpoint: see `mdk-tui status`.
    """
    save, step, why = checkpoint_meant(workspace, checkpoint, iteration)
    if why:
        click.echo(why, err=True)
    plan = serve_plan(
        workspace,
        save,
        port=port or free_port(),
        iteration=step,
        changes=arguments,
        launcher=wish.launcher,
        gpus=wish.gpus,
        wish=wish,
    )
    if dry_run:
        print_dry_run(plan, workspace, as_json=as_json)
        return 0
    folder = launch(plan, workspace, as_json=as_json)
    if until_ready_too:
        for words in until_ready(folder, workspace):
            click.echo(words, err=True)
        if as_json:
            click.echo(json.dumps(describe(folder).as_json()))
    return 0
