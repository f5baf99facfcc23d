"""`mdk-tui samples [RUN]`: the answers to the same prompts from all checkpoints of a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice

import click

from backends.errors import UserError
from backends.inference.samples import NAME, Sample, of_prompt, prompts_of, read
from backends.runs.catalog import find_run, run_folders
from backends.runs.folder import RunFolder
from backends.text import clean_line
from backends.workspace import Workspace
from tui.commands.options import json_option

NEWEST = 50  # runs that are looked at for samples


@click.command()
@click.argument("run", required=False)
@json_option("One object a sample.")
@click.pass_obj
def command(workspace: Workspace, run: str | None, as_json: bool) -> int:
    """Print the samples of RUN (default: the newest run that has some), by prompt and iteration.

    Each training run completes the prompts of [samples] in mdk.toml from each of its checkpoints.
    """
    folder = find_run(workspace, run) if run else _newest(workspace)
    found = read(folder.path)
    if not found:
        raise UserError(
            f"{folder.name} has no samples.",
            'Name prompts in mdk.toml before a run starts: [samples] prompts = ["Once upon a time"]',
        )
    if as_json:
        for sample in found:
            click.echo(json.dumps(asdict(sample)))
    else:
        click.echo("\n\n".join(_lines(found, shutil.get_terminal_size().columns)))
    return 0


def _newest(workspace: Workspace) -> RunFolder:
    for folder in islice(run_folders(workspace), NEWEST):
        if (folder.path / NAME).exists():
            return folder
    return find_run(workspace, None, training=True)


def _lines(found: Sequence[Sample], width: int) -> list[str]:
    """One block for each prompt with one line for each iteration, cut to `width`."""
    blocks: list[str] = []
    for prompt in prompts_of(found) or [""]:
        rows = [clean_line(prompt, width)] if prompt else []
        for sample in of_prompt(found, prompt):
            said = f"(none: {sample.skipped})" if sample.skipped else sample.continuation
            rows.append(clean_line(f"{sample.iteration:>9,}  {said}", width))
        blocks.append("\n".join(rows))
    return blocks
