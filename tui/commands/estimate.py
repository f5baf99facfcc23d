"""`mdk-tui estimate`: computes parameters, memory, tokens, time and disk of a training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from backends.errors import UserError
from backends.launch.facts import known_throughput
from backends.megatron.indexed_dataset import find_prefix, read_indexed_dataset
from backends.models import presets
from backends.models.arguments import merge_arguments, value_of
from backends.models.configuration import read_configuration
from backends.models.estimate import Estimate, estimate
from backends.models.flag_checks import split_shares
from backends.models.layout import check
from backends.models.layout_checks import Resources
from backends.models.throughput import PEAKS, Throughput, assumed_throughput
from backends.runs.plan import RunPlan
from backends.ticks import GIB, count_words, duration, size_words
from backends.workspace import Workspace
from tui.commands.acceleration_options import Accelerate, acceleration_options
from tui.commands.options import MEGATRON_ARGUMENTS, PATH, json_option
from tui.commands.start_text import print_problems


@click.command()
@click.option("--preset", "preset_name", required=True, metavar="P", help="A model by name, such as gpt3-7b.")
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="GPUs on all nodes.")
@click.option(
    "--gpu-memory", type=click.FloatRange(min=1), metavar="GIB", help="Memory of one GPU, to check against."
)
@click.option(
    "--throughput",
    type=click.FloatRange(min=0, min_open=True),
    metavar="TFLOPS",
    help="Measured, per GPU (default: from an earlier run of the model or from the preset, else assumed).",
)
@click.option(
    "--gpu",
    "gpu_name",
    type=click.Choice(list(PEAKS), case_sensitive=False),
    help="The GPU for an assumed throughput (default: H100).",
)
@click.option("--data", type=PATH, metavar="PREFIX", help="Data set, to compute epochs.")
@acceleration_options
@json_option("One object.")
@MEGATRON_ARGUMENTS
@click.pass_obj
def command(
    workspace: Workspace,
    preset_name: str,
    gpus: int,
    gpu_memory: float | None,
    throughput: float | None,
    gpu_name: str | None,
    data: Path | None,
    accelerate: Accelerate,
    as_json: bool,
    arguments: tuple[str, ...],
) -> int:
    """Compute what a training needs, with Megatron-LM's own formula."""
    preset = presets.find(preset_name, workspace)
    if preset.trainer == "demo":
        raise UserError(
            f"{preset.name} is the preset of the demo and fits any machine.", "Name one of `mdk-tui presets`."
        )
    words = merge_arguments(accelerate(preset.arguments), arguments)
    known = known_throughput(RunPlan("train", "megatron", arguments=words, preset=preset.name), workspace)
    config = read_configuration(words, gpus)
    resources = Resources(gpus, int(gpu_memory * GIB) if gpu_memory else None)
    if data is not None:
        resources = _with_data(resources, data)
    found = check(words, resources)
    result = estimate(
        config,
        data_tokens=resources.data_tokens,
        train_split=split_shares(value_of(words, "--split"))[0],
        throughput=(Throughput(throughput, "as given") if throughput else known)
        or assumed_throughput(config, gpu_name),
    )
    if as_json:
        problems = [problem.as_json() for problem in found]
        click.echo(
            json.dumps({"preset": preset_name, "gpus": gpus, **result.as_json(), "problems": problems})
        )
        return 0
    click.echo("\n".join(lines(result)))
    print_problems(found)
    return 0


def _with_data(resources: Resources, prefix: Path) -> Resources:
    """`resources` with the data set at `prefix`. Raises UserError if it is not complete."""
    data = read_indexed_dataset(find_prefix(prefix))
    if data.reason is not None:
        raise UserError(f"{prefix}: {data.reason}", f"See: mdk-tui data {prefix}")
    return dataclasses.replace(
        resources, data_tokens=data.tokens, data_dtype=data.dtype, fewest_documents=data.sequences
    )


def lines(result: Estimate) -> list[str]:
    """The estimate as rows of text, without what is not known. MB are 2**20 bytes here, as Megatron-LM prints them."""
    counts, memory, training = result.parameters, result.memory, result.training
    rows: dict[str, str | None] = {
        "parameters": f"{counts.total / 1e9:.2f} billion: {counts.transformer / 1e9:.2f} in transformer layers, "
        f"{counts.embedding / 1e9:.2f} in embedding layers",
        "fullest GPU": f"{counts.most_loaded_shard / 1e9:.4f} billion parameters",
        "memory": f"{memory.total:.2f} MB: weight and optimizer {memory.weight_and_optimizer:.2f} MB, "
        f"activations {memory.activation:.2f} MB",
        "activations": f"{memory.activation_without_recomputation:.2f} MB without recomputation, "
        f"{memory.activation_with_full_recomputation:.2f} MB with full recomputation",
        "tokens": f"{training.tokens_per_iteration:,} an iteration"
        + (f", {count_words(training.tokens)} in all" if training.tokens else "")
        + (f", {training.epochs:,.2f} epochs" if training.epochs else ""),
        "time": f"{_seconds(training.seconds_per_iteration)} an iteration"
        + (f", {duration(training.seconds)} in all" if training.seconds else "")
        + f" at {training.throughput.words}",
        "checkpoint": size_words(training.checkpoint_bytes),
        "disk": f"{size_words(training.disk_bytes)} for {training.checkpoints} checkpoints"
        if training.disk_bytes
        else None,
    }
    return [f"{name:<12}{text}" for name, text in rows.items() if text]


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1000:.2g} ms"
