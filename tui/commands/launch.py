"""`mdk-tui launch`: start a run, or print what would run."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from backends.launch.placement import Placement, default_launcher, placed
from backends.launch.ports import with_master_port
from backends.models import presets
from backends.runs.plan import TRAINERS, Trainer
from backends.runs.planning import new_save_folder, train_plan
from backends.runs.resuming import loading
from backends.workspace import Workspace
from tui.commands.placement_options import placement_options
from tui.commands.resume_text import go_on
from tui.commands.run_text import gpus_of, launch, megatron_arguments, now, print_dry_run


@click.command()
@click.option("--preset", "preset_name", required=True, metavar="P", help="A model by name, such as tiny.")
@click.option("--trainer", type=click.Choice(TRAINERS[:2]), help="What trains (default: the preset's own).")
@placement_options
@click.option(
    "--save", "base", type=click.Path(path_type=Path), help="Checkpoints go to a dated folder below BASE."
)
@click.option(
    "--load",
    type=click.Path(path_type=Path),
    help="Begin with this checkpoint: a save folder, its base, or iter_N.",
)
@click.option("--dry-run", is_flag=True, help="Only print the command.")
@click.option("--json", "as_json", is_flag=True, help="One object.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- MEGATRON ARGUMENTS]")
@click.pass_obj
def command(
    workspace: Workspace,
    preset_name: str,
    trainer: str | None,
    launcher: str | None,
    gpus: str | None,
    processes: int | None,
    image: Path | None,
    no_image: bool,
    no_home: bool,
    hostfile: Path | None,
    base: Path | None,
    load: Path | None,
    dry_run: bool,
    as_json: bool,
    arguments: tuple[str, ...],
) -> int:
    """Start a training run that goes on when this terminal is closed."""
    preset = presets.find(preset_name)
    chosen_trainer = cast("Trainer", trainer or preset.trainer)
    chosen_gpus, changes = gpus_of(gpus), megatron_arguments(arguments)
    plan = placed(
        train_plan(
            chosen_trainer,
            preset.arguments,
            changes,
            new_save_folder(base or workspace.checkpoints, now()),
            preset=preset.name,
            title=preset.title,
            launcher=launcher or default_launcher(chosen_trainer),
            gpus=chosen_gpus,
        ),
        workspace,
        Placement(processes, image, not no_image, no_home, hostfile),
    )
    if load is not None:
        go_on(
            loading(workspace, with_master_port(plan, workspace), load),
            workspace,
            dry_run=dry_run,
            as_json=as_json,
        )
        return 0
    if dry_run:
        print_dry_run(with_master_port(plan, workspace), workspace, as_json=as_json)
        return 0
    launch(plan, workspace, as_json=as_json)
    return 0
