"""Checkpoints in Megatron-LM's folders: a zip of arrays in the place of its file, the tracker last and atomically."""

# pyright: standard, reportMissingTypeStubs=false, reportMissingImports=false
from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from backends.demo.model import Weights

TRACKER = "latest_checkpointed_iteration.txt"


class CheckpointError(Exception):
    """The checkpoint cannot be read; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class State:
    """All that a resume needs. Data order needs nothing: batches are numbered."""

    iteration: int
    consumed_samples: int
    weights: Weights
    first_moment: Weights
    second_moment: Weights
    arguments: dict[str, Any]


def file_of(folder: Path, iteration: int) -> Path:
    return folder / f"iter_{iteration:07d}" / "mp_rank_00" / "model_optim_rng.pt"


def save(folder: Path, state: State) -> None:
    """Write the file under another name, then rename it, then the tracker likewise: a kill leaves the old or the new."""
    path = file_of(folder, state.iteration)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("args.json", json.dumps(state.arguments))
        archive.writestr(
            "state.json",
            json.dumps({"iteration": state.iteration, "consumed_samples": state.consumed_samples}),
        )
        for group, arrays in (
            ("model", state.weights),
            ("exp_avg", state.first_moment),
            ("exp_avg_sq", state.second_moment),
        ):
            for name, array in arrays.items():
                with archive.open(f"{group}/{name}.npy", "w") as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
    _replace(path, content.getvalue())
    _replace(folder / TRACKER, str(state.iteration).encode())


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def tracked_iteration(folder: Path) -> int | None:
    """What the tracker names; None when there is no tracker. Raises CheckpointError when it is damaged."""
    try:
        text = (folder / TRACKER).read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError):
        text = ""
    if not text.isdigit() or int(text) <= 0:
        raise CheckpointError(f"error parsing metadata file {folder / TRACKER}")
    return int(text)


def load(folder: Path, iteration: int) -> State:
    """Read one checkpoint back. Raises CheckpointError for a missing, torn or foreign file."""
    path = file_of(folder, iteration)
    try:
        with zipfile.ZipFile(path) as archive:
            arguments, state = (json.loads(archive.read(name)) for name in ("args.json", "state.json"))
            groups: dict[str, Weights] = {"model": {}, "exp_avg": {}, "exp_avg_sq": {}}
            for member in archive.namelist():
                group, _, name = member.partition("/")
                if group in groups:
                    array = np.lib.format.read_array(io.BytesIO(archive.read(member)), allow_pickle=False)
                    groups[group][name.removesuffix(".npy")] = array
    except FileNotFoundError:
        raise CheckpointError(f"could not load the checkpoint: {path} is missing") from None
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
        raise CheckpointError(f"could not load the checkpoint {path}: {error}") from None
    return State(
        int(state["iteration"]),
        int(state["consumed_samples"]),
        groups["model"],
        groups["exp_avg"],
        groups["exp_avg_sq"],
        arguments,
    )
