"""The arguments that a checkpoint was written with: from the checkpoint, else from the log or the plan of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.errors import UserError
from backends.megatron.events import Argument
from backends.megatron.parser import Parser
from backends.runs.argument_values import planned_values, printed_values
from backends.runs.folder import RunFolder
from backends.runs.torch_archive import read_archive
from backends.runs.torch_checkpoint import MODEL, SHARD

HEAD = 1 << 21  # bytes at the beginning of a log that hold its argument block


@dataclass(frozen=True, slots=True)
class Stored:
    """Arguments by Megatron's names; one that is not in `values` is not known.

    `scheduler` is the state of OptimizerParamScheduler if the file holds it, `source` says where they were found.
    `distributed`: a torch_dist or zarr checkpoint, which can be loaded with another layout.
    """

    values: Mapping[str, Any]
    scheduler: Mapping[str, Any] | None
    source: str
    distributed: bool = False


def read_stored(checkpoint: Path, writer: RunFolder | None) -> Stored | None:
    """The arguments of `checkpoint`, an `iter_*` folder that the run `writer` wrote (None: not known).

    None if they are not known. Reads a few hundred KiB, never a tensor.
    """
    file = arguments_file(checkpoint)
    distributed = file is not None and file.name == "common.pt"
    found = read_archive(file) if file is not None else None
    if found is not None and found.arguments:
        return Stored(found.arguments, found.scheduler, checkpoint.name, distributed)
    if writer is None:
        return None
    if printed := read_argument_block(writer.log):
        return Stored(printed_values(printed), None, f"the log of {writer.name}", distributed)
    try:
        plan = writer.plan()
    except UserError:
        return None
    values = planned_values(plan.arguments, plan.trainer, plan.processes)
    return Stored(values, None, f"the plan of {writer.name}", distributed)


def arguments_file(checkpoint: Path) -> Path | None:
    """The file of a checkpoint that holds its arguments, in any format."""
    common = checkpoint / "common.pt"
    if common.is_file():
        return common
    try:
        shards = sorted(path.name for path in checkpoint.iterdir() if SHARD.fullmatch(path.name))
    except OSError:
        return None
    file = checkpoint / shards[0] / MODEL if shards else None
    return file if file is not None and file.is_file() else None


def read_argument_block(log: Path) -> dict[str, str]:
    """name → value as Megatron-LM prints them at the start of `log`; empty if it does not."""
    try:
        with log.open("rb") as file:
            data = file.read(HEAD)
    except OSError:
        return {}
    events = Parser().feed(data)
    return {event.name: event.value for event in events if isinstance(event, Argument)}
