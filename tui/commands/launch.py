"""`mdk-tui launch`: start a run, or print what would run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import cast

import click

from backends.errors import UserError
from backends.launch.editing import editable, edited
from backends.launch.facts import read_gpus
from backends.launch.placement import Placement, default_launcher, placed
from backends.launch.preview import preview_of
from backends.models import presets
from backends.models.megatron_presets import DEFAULT
from backends.runs.plan import TRAINERS, RunPlan, Trainer
from backends.runs.planning import new_save_folder, train_plan
from backends.runs.ports import with_master_port
from backends.runs.resuming import loading
from backends.tracking.place import chosen_environment
from backends.workspace import Workspace
from tui.commands.acceleration_options import Accelerate, acceleration_options
from tui.commands.options import DRY_RUN, MEGATRON_ARGUMENTS, PATH, grouped, json_option
from tui.commands.placement_options import placement_options
from tui.commands.probe import check_nodes
from tui.commands.resume_text import go_on
from tui.commands.start_text import launch, print_dry_run


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """`save` is the base of the dated folder; `mlflow` an address, "off", or "" for what the settings say."""

    save: Path | None
    load: Path | None
    probe: bool
    mlflow: str
    edit: bool
    dry_run: bool
    as_json: bool


@click.command()
@click.option(
    "--preset", "preset_name", default=DEFAULT, show_default=True, metavar="P", help="A model by name."
)
@click.option("--trainer", type=click.Choice(TRAINERS[:2]), help="What trains (default: as the preset says).")
@placement_options
@acceleration_options
@grouped(
    "options",
    LaunchOptions,
    click.option("--save", type=PATH, help="Checkpoints go to a dated folder below BASE."),
    click.option("--load", type=PATH, help="Start from this checkpoint: a save folder, its base, or iter_N."),
    click.option("--probe", is_flag=True, help="Ask every node first, and start only if all are fit."),
    click.option(
        "--mlflow",
        default="",
        metavar="URL|off",
        help="Where this run is tracked (default: from the settings).",
    ),
    click.option("--edit", is_flag=True, help="Edit the command before it starts."),
    DRY_RUN,
    json_option("One object."),
)
@MEGATRON_ARGUMENTS
@click.pass_obj
def command(
    workspace: Workspace,
    preset_name: str,
    trainer: str | None,
    wish: Placement,
    accelerate: Accelerate,
    options: LaunchOptions,
    arguments: tuple[str, ...],
) -> int:
    """Start a training run. It continues when this terminal is closed."""
    preset = presets.find(preset_name, workspace)
    chosen = cast("Trainer", trainer or preset.trainer)
    plan = train_plan(
        chosen,
        accelerate(preset.arguments),
        arguments,
        new_save_folder(options.save or workspace.checkpoints, datetime.now()),
        preset=preset.name,
        title=preset.title,
        launcher=wish.launcher or default_launcher(chosen),
    )
    gpus = read_gpus() if (chosen, plan.launcher) == ("megatron", "mpirun") else None
    plan = placed(plan, workspace, wish, present=len(gpus or ()), usual=preset.gpus)
    plan = replace(plan, environment={**plan.environment, **chosen_environment(options.mlflow)})
    if options.load is not None:
        found = loading(workspace, with_master_port(plan, workspace), options.load)
        go_on(found, workspace, dry_run=options.dry_run, as_json=options.as_json)
        return 0
    if options.edit:
        plan = _edited(plan, workspace)
    if options.dry_run:
        print_dry_run(plan, workspace, as_json=options.as_json, gpus=gpus)
        return 0
    if options.probe:
        plan = check_nodes(plan, workspace)
    launch(plan, workspace, as_json=options.as_json, gpus=gpus)
    return 0


def _edited(plan: RunPlan, workspace: Workspace) -> RunPlan:
    """The plan with its command as the user's editor leaves it. Raises UserError when it is left without saving."""
    preview = preview_of(plan, workspace)
    problems = [f"# {problem.severity}: {problem.message} {problem.remedy}" for problem in preview.problems]
    head = "# Saving this file starts the run with this command; leaving without saving starts nothing."
    text = click.edit("\n".join([head, *problems, editable(preview.command)]), extension=".sh")
    if text is None:
        raise UserError(
            "The command was not saved, so nothing was started.", "Save it in the editor to start it."
        )
    return edited(replace(plan, environment=preview.plan.environment), workspace, text)
