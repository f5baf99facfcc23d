"""Checkpoint trees for tests: whole ones as Megatron-LM writes them, and the ways in which they break."""

from __future__ import annotations

import io
import itertools
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.runs.checkpoints import TRACKER


class Namespace:
    """Pickled under argparse's name, as Megatron stores its arguments."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.__dict__.update(values)


Namespace.__module__, Namespace.__qualname__ = "argparse", "Namespace"


class _ForeignPickler(pickle._Pickler):  # pyright: ignore[reportPrivateUsage]
    """Writes global names of modules that are not installed here, as a machine with torch would."""

    def save_global(self, obj: Any, name: str | None = None) -> None:
        self.write(b"c" + obj.__module__.encode() + b"\n" + obj.__qualname__.encode() + b"\n")  # type: ignore[attr-defined]
        self.memoize(obj)  # type: ignore[attr-defined]

    dispatch = {**pickle._Pickler.dispatch, type: save_global}  # pyright: ignore  # noqa: RUF012


def foreign_pickle(value: Any) -> bytes:
    out = io.BytesIO()
    _ForeignPickler(out, 2).dump(value)
    return out.getvalue()


def torch_file(
    arguments: dict[str, Any] | None = None, size: int = 2000, scheduler: dict[str, Any] | None = None
) -> bytes:
    """A zip as torch.save writes it: `archive/data.pkl` and stored tensors."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        state: dict[str, Any] = {"iteration": 100, "checkpoint_version": 3.0}
        if arguments is not None:
            state["args"] = Namespace(arguments)
        if scheduler is not None:
            state["opt_param_scheduler"] = scheduler
        archive.writestr("archive/data.pkl", foreign_pickle(state))
        archive.writestr("archive/data/0", bytes(size))
    return with_zip64(out.getvalue())


def with_zip64(content: bytes) -> bytes:
    """With the zip64 end record and its locator, which torch.save writes whatever the size."""
    end = content.rfind(b"PK\x05\x06")
    entries, _, length, offset = struct.unpack("<HHII", content[end + 8 : end + 20])
    record = struct.pack("<4sQHHIIQQQQ", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, length, offset)
    return content[:end] + record + struct.pack("<4sIQI", b"PK\x06\x07", 0, end, 1) + content[end:]


class Metadata:
    def __init__(self, storage: dict[Any, Any]) -> None:
        self.storage_data = storage


class StorageInfo:
    def __init__(self, path: str, offset: int, length: int) -> None:
        self.relative_path, self.offset, self.length = path, offset, length


for kind, name in ((Metadata, "Metadata"), (StorageInfo, "_StorageInfo")):
    kind.__module__, kind.__qualname__ = "torch.distributed.checkpoint.metadata", name


def torch_checkpoint(
    save: Path,
    iteration: int = 100,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    optimizer: bool = False,
    stored: bool = True,
) -> Path:
    folder = save / f"iter_{iteration:07d}"
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "expert_model_parallel_size")
    arguments = {**dict(zip(names, (tp, pp, ep), strict=True)), "hidden_size": 64}
    for t, p, e in itertools.product(range(tp), range(pp), range(ep)):
        shard = folder / (
            f"mp_rank_{t:02d}" + (f"_{p:03d}" if pp > 1 else "") + (f"_{e:03d}" if ep > 1 else "")
        )
        shard.mkdir(parents=True)
        (shard / "model_optim_rng.pt").write_bytes(torch_file(arguments if stored else None))
        if optimizer:
            (shard / "distrib_optim.pt").write_bytes(torch_file())
    (save / TRACKER).write_text(str(iteration))
    return folder


def dist_checkpoint(save: Path, iteration: int = 100, backend: str = "torch_dist") -> Path:
    folder = save / f"iter_{iteration:07d}"
    folder.mkdir(parents=True)
    (folder / "common.pt").write_bytes(
        torch_file({"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1})
    )
    if backend == "zarr":
        (folder / "model.weight").mkdir()
        (folder / "model.weight" / ".zarray").write_text("{}")
    else:
        for rank in range(2):
            (folder / f"__{rank}_0.distcp").write_bytes(bytes(1000))
        extents = ((0, (400, 600)), (1, (0, 400)))
        storage = {
            (rank, tensor): StorageInfo(f"__{rank}_0.distcp", *extent)
            for rank in range(2)
            for tensor, extent in extents
        }
        (folder / ".metadata").write_bytes(foreign_pickle(Metadata(storage)))
    (folder / "metadata.json").write_text(
        json.dumps({"sharded_backend": backend, "sharded_backend_version": 1})
    )
    (save / TRACKER).write_text(str(iteration))
    return folder


Break = Callable[[Path], object]


def cut(name: str, keep: float) -> Break:
    def apply(folder: Path) -> None:
        path = folder / name
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * keep)])

    return apply


def remove(name: str) -> Break:
    def apply(folder: Path) -> None:
        path = folder / name
        if path.is_dir():
            for child in path.iterdir():
                child.unlink()
            path.rmdir()
        else:
            path.unlink()

    return apply


def write(name: str, content: bytes) -> Break:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return apply
