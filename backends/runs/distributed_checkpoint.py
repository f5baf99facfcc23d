"""Judges torch_dist and zarr checkpoints. common.pt is written first, then shards and `.metadata`, metadata.json last."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from backends.runs.torch_archive import Opaque, read_pickle, torn


def dist_problem(folder: Path, names: list[str], metadata: dict[str, Any] | None) -> str | None:
    """Why the checkpoint in `folder` (its entries are `names`) is not complete, or None."""
    if "metadata.json" not in names:
        return "metadata.json, which is written last, is missing."
    if metadata is None:
        return "metadata.json is damaged."
    if not (folder / "common.pt").is_file():
        return "common.pt is missing."
    if problem := torn(folder / "common.pt"):
        return f"common.pt {problem}."
    if metadata.get("sharded_backend") == "zarr":
        return _zarr_problem(folder, names)
    return _shards_problem(folder, names)


def _zarr_problem(folder: Path, names: list[str]) -> str | None:
    tensors = [name for name in names if (folder / name).is_dir()]
    if not tensors:
        return "It holds no tensors."
    lacking = [name for name in tensors if not (folder / name / ".zarray").is_file()]
    return f"{lacking[0]}/.zarray is missing." if lacking else None


def _shards_problem(folder: Path, names: list[str]) -> str | None:
    if ".metadata" not in names:
        return ".metadata is missing."
    try:
        wanted = shard_sizes((folder / ".metadata").read_bytes())
    except ValueError:
        return ".metadata is damaged."
    for name, size in sorted(wanted.items()):
        if name not in names:
            return f"The shard {name} is missing."
        there = os.stat(folder / name)  # noqa: PTH116  (10,000 files)
        if not stat.S_ISREG(there.st_mode):
            return f"The shard {name} is no file."
        if there.st_size < size:
            return f"The shard {name} has {there.st_size:,} of at least {size:,} bytes."
    if not any(name.endswith(".distcp") for name in names):
        return "It holds no shards (*.distcp)."
    return None


def shard_sizes(metadata: bytes) -> dict[str, int]:
    """file → its minimum size in bytes, from the pickled `Metadata` of torch.distributed.checkpoint. Raises ValueError."""
    value = read_pickle(metadata)
    state = value.state if isinstance(value, Opaque) else None
    if not isinstance(state, dict):
        raise ValueError("no Metadata")
    storage = cast("dict[str, Any]", state).get("storage_data")
    if not isinstance(storage, dict):
        raise ValueError("no storage_data")
    sizes: dict[str, int] = {}
    for name, end in _extents(cast("dict[Any, Any]", storage)):
        sizes[name] = max(sizes.get(name, 0), end)
    return sizes


def _extents(storage: dict[Any, Any]) -> Iterator[tuple[str, int]]:
    """(file, end of a tensor in it) of every `_StorageInfo(relative_path, offset, length)`."""
    for info in storage.values():
        state = info.state if isinstance(info, Opaque) else None
        if isinstance(state, dict):
            values = cast("dict[str, Any]", state)
            name, offset, length = values.get("relative_path"), values.get("offset"), values.get("length")
            if isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
                yield name, offset + length
