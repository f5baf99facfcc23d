"""`mdk-tui launch`: start a run, or print what would run."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import click

from backends.launch.placement import Placement, placed
from backends.launch.ports import with_master_port
from backends.models import presets
from backends.runs.plan import TRAINERS, Trainer
from backends.runs.planning import new_save_folder, train_plan
from backends.workspace import Workspace
from tui.commands.run_text import gpus_of, launch, megatron_arguments, now, print_dry_run


@click.command()
@click.option("--preset", "preset_name", required=True, metavar="P", help="A model by name, such as tiny.")
@click.option("--trainer", type=click.Choice(TRAINERS[:2]), help="What trains (default: the preset's own).")
@click.option("--launcher", help="How it is started (default: local for the demo, mpirun for Megatron-LM).")
@click.option("--gpus", metavar="N|LIST", help="The first N GPUs, or a list such as 0,1.")
@click.option("--np", "processes", type=click.IntRange(1), help="Processes (default: one a GPU, or 1).")
@click.option(
    "--image",
    type=click.Path(path_type=Path),
    help="Run inside this .sif (Megatron-LM: the workspace's own).",
)
@click.option("--no-image", is_flag=True, help="Run without an image, whatever the workspace has.")
@click.option("--no-home", is_flag=True, help="Do not show the home folder to the image.")
@click.option("--hostfile", type=click.Path(path_type=Path), help="Nodes, one a line: NAME [slots=N].")
@click.option(
    "--save", "base", type=click.Path(path_type=Path), help="Checkpoints go to a dated folder below BASE."
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
            launcher=launcher or ("local" if chosen_trainer == "demo" else "mpirun"),
            gpus=chosen_gpus,
        ),
        workspace,
        Placement(processes, image, not no_image, no_home, hostfile),
    )
    if dry_run:
        print_dry_run(with_master_port(plan, workspace), workspace, as_json=as_json)
        return 0
    launch(plan, workspace, as_json=as_json)
    return 0
