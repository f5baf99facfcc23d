"""`mdk-tui presets`: the models by name, with their computed size."""

from __future__ import annotations

import json

import click

from backends.models.configuration import ArgumentError, read_configuration
from backends.models.estimate import count_parameters
from backends.models.presets import Preset, all_presets
from backends.text import clean_line
from backends.ticks import count_words
from backends.workspace import Workspace
from tui.commands.options import json_option


@click.command()
@json_option("One array.")
@click.pass_obj
def command(workspace: Workspace, as_json: bool) -> int:
    """List the models that `launch` and `estimate` know, and yours: [preset.NAME] in mdk.toml, or presets/NAME.toml."""
    known = all_presets(workspace)
    sizes = {name: parameters(preset) for name, preset in known.items()}
    if as_json:
        click.echo(json.dumps([_as_json(preset, sizes[name]) for name, preset in known.items()]))
        return 0
    width = max(map(len, known))
    for name, preset in known.items():
        count = sizes[name]
        size = "?" if count is None else count_words(count)
        row = f"{name:<{width}}  {size:>9}  {preset.trainer:<8}  {clean_line(preset.title)}"
        click.echo(row + (f"  ({clean_line(preset.source)})" if preset.source else ""))
    return 0


def parameters(preset: Preset) -> int | None:
    """The number of parameters; None where the arguments do not define it, as for the demo with its own vocabulary."""
    if preset.trainer == "demo":
        return None
    try:
        return count_parameters(read_configuration(preset.arguments, 1)).total
    except ArgumentError:
        return None


def _as_json(preset: Preset, count: int | None) -> dict[str, object]:
    return {
        "name": preset.name,
        "title": preset.title,
        "trainer": preset.trainer,
        "parameters": count,
        "arguments": list(preset.arguments),
        "gpus": preset.gpus,
        "source": preset.source,
    }
