"""Checkpoints in Megatron-LM's folders: a zip of arrays instead of torch's file, then the tracker, both written atomically.

    DIR/latest_checkpointed_iteration.txt        the iteration, as text
    DIR/iter_0000100/mp_rank_00/model_optim_rng.pt
        args.json                                the run's arguments
        state.json                               iteration, consumed samples, schedule, tokenizer, version
        model/NAME.npy, exp_avg/NAME.npy, exp_avg_sq/NAME.npy

There is no random state to save: samples follow from the seed and their number (corpus.py), and nothing else is random.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from backends.demo.model import DTYPE, Shape, Weights, weight_shapes
from backends.demo.tokenizer import Pair, Tokenizer

TRACKER = "latest_checkpointed_iteration.txt"
VERSION = 3.0  # Megatron-LM's number for this layout of the arrays
GROUPS = ("model", "exp_avg", "exp_avg_sq")
UNREADABLE = (OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError, RuntimeError, MemoryError,
              RecursionError, zipfile.BadZipFile, zlib.error)  # fmt: skip

# What must be equal in a checkpoint and a run: Megatron-LM's check_checkpoint_args in its order, and more.
MUST_MATCH = ("num_layers", "hidden_size", "num_attention_heads", "add_position_embedding", "max_position_embeddings",
              "padded_vocab_size", "tokenizer_type", "vocab_size", "ffn_hidden_size", "swiglu")  # fmt: skip


class CheckpointError(Exception):
    """A checkpoint cannot be read, written or used. The text is one sentence, Megatron-LM's own if it has one."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a resume needs."""

    iteration: int
    consumed_samples: int
    step: int  # of the optimizer; after --finetune it differs from the iteration
    weights: Weights
    first_moment: Weights
    second_moment: Weights
    scheduler: dict[str, Any]
    merges: list[Pair]
    arguments: dict[str, Any]

    @property
    def shape(self) -> Shape:
        return Shape.of(self.arguments)

    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self.merges, int(self.arguments["vocab_size"]))


def file_of(folder: Path, iteration: int) -> Path:
    """The file of one checkpoint, by Megatron-LM's names."""
    return folder / f"iter_{iteration:07d}" / "mp_rank_00" / "model_optim_rng.pt"


def save(folder: Path, state: State) -> None:
    """Write the checkpoint, then the tracker. A kill at any moment leaves the old or the new state. Raises CheckpointError."""
    path = file_of(folder, state.iteration)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _replace(path, _packed(state))
        _replace(folder / TRACKER, str(state.iteration).encode())
    except OSError as error:
        raise CheckpointError(
            f"could not save the checkpoint to {folder}: {error.strerror or error}"
        ) from None


def _packed(state: State) -> bytes:
    values = {
        "iteration": state.iteration,
        "consumed_train_samples": state.consumed_samples,
        "step": state.step,
        "opt_param_scheduler": state.scheduler,
        "merges": state.merges,
        "checkpoint_version": VERSION,
    }
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("args.json", json.dumps(state.arguments))
        archive.writestr("state.json", json.dumps(values))
        for group, arrays in zip(
            GROUPS, (state.weights, state.first_moment, state.second_moment), strict=True
        ):
            for name, array in arrays.items():
                with archive.open(f"{group}/{name}.npy", "w") as member:
                    np.lib.format.write_array(cast(io.BytesIO, member), array, allow_pickle=False)
    return content.getvalue()


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)  # the checkpoint must be on disk before the tracker names it
        finally:
            os.close(folder)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def tracked_iteration(folder: Path) -> int | None:
    """The iteration in the tracker; None without a tracker. Raises CheckpointError if it does not hold one."""
    path = folder / TRACKER
    try:
        text = path.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CheckpointError(f"could not read {path}: {error.strerror}") from None
    try:
        iteration = int(text)
    except ValueError:
        raise CheckpointError(f"ERROR: Invalid metadata file {path}. Exiting") from None
    if iteration <= 0:
        raise CheckpointError(f"error parsing metadata file {path}")
    return iteration


def load(folder: Path, iteration: int) -> State:
    """Read one checkpoint. Raises CheckpointError for a missing, torn or foreign file."""
    path = file_of(folder, iteration)
    try:
        with zipfile.ZipFile(path) as archive:
            arguments, values = (json.loads(archive.read(name)) for name in ("args.json", "state.json"))
            sizes = weight_shapes(Shape.of(arguments))
            groups = [{name: _array(archive, group, name, sizes[name]) for name in sizes} for group in GROUPS]
        state = State(
            int(values["iteration"]),
            int(values["consumed_train_samples"]),
            int(values["step"]),
            *groups,
            scheduler=dict(values["opt_param_scheduler"]),
            merges=[(int(first), int(second)) for first, second in values["merges"]],
            arguments=arguments,
        )
        state.tokenizer()
    except FileNotFoundError:
        raise CheckpointError(f"could not load the checkpoint {path}: there is no such file") from None
    except KeyError as error:
        raise CheckpointError(f"could not load the checkpoint {path}: {error.args[0]} is missing") from None
    except UNREADABLE as error:
        raise CheckpointError(
            f"could not load the checkpoint {path}: {error or type(error).__name__}"
        ) from None
    return state


def check_arguments(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raises CheckpointError, in Megatron-LM's words, if a run's arguments do not fit the checkpoint's."""
    for name in MUST_MATCH:
        if stored.get(name) != wanted[name]:
            raise CheckpointError(
                f"{name} value from checkpoint ({stored.get(name)}) is not equal to the input argument value ({wanted[name]})."
            )


def _array(archive: zipfile.ZipFile, group: str, name: str, size: tuple[int, ...]) -> Any:
    member = archive.getinfo(f"{group}/{name}.npy")
    if member.file_size > 4 * int(np.prod(size)) + 4096:
        raise ValueError(f"{member.filename} is larger than the model")
    array = np.lib.format.read_array(io.BytesIO(archive.read(member)), allow_pickle=False)
    if array.shape != size or array.dtype != DTYPE:
        raise ValueError(f"{member.filename} is {array.dtype}{list(array.shape)}, not float32{list(size)}")
    return array
