"""`mdk-tui serve CHECKPOINT`: the text server, a run of its own."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from backends.launch.placement import Placement, default_launcher, placed
from backends.launch.ports import with_master_port
from backends.runs.planning import free_port, save_folder_of, serve_plan
from backends.workspace import Workspace
from tui.commands.placement_options import placement_options
from tui.commands.run_text import gpus_of, launch, megatron_arguments, print_dry_run


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(1, 65535), help="Default: 8028 if it is free, else a free one.")
@placement_options
@click.option("--dry-run", is_flag=True, help="Only print the command.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- MEGATRON ARGUMENTS]")
@click.pass_obj
def command(
    workspace: Workspace,
    checkpoint: Path,
    port: int | None,
    launcher: str | None,
    gpus: str | None,
    processes: int | None,
    image: Path | None,
    no_image: bool,
    no_home: bool,
    hostfile: Path | None,
    dry_run: bool,
    as_json: bool,
    arguments: tuple[str, ...],
) -> int:
    """Start the text server on CHECKPOINT, a dated folder, on 127.0.0.1.

    It listens once the checkpoint is loaded: see `mdk-tui status`.
    """
    save, why = save_folder_of(workspace, checkpoint)
    if why:
        click.echo(why, err=True)
    changes = megatron_arguments(arguments)
    plan = serve_plan(workspace, save, port=port or free_port(), changes=changes)
    chosen = launcher or default_launcher(plan.trainer)
    plan = dataclasses.replace(plan, launcher=chosen, gpus=gpus_of(gpus))
    plan = placed(plan, workspace, Placement(processes, image, not no_image, no_home, hostfile))
    if dry_run:
        print_dry_run(with_master_port(plan, workspace), workspace, as_json=as_json)
    else:
        launch(plan, workspace, as_json=as_json)
    return 0
