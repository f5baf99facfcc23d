"""Checkpoints described from disk, without torch: what is there, whole or not, and why.

Layout and the order in which Megatron-LM writes (shards, then metadata, then the tracker) decide; see
megatron/training/checkpointing.py of core_r0.8.0 and megatron/core/dist_checkpointing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from backends.files import read_json, real
from backends.runs.distributed_checkpoint import dist_problem
from backends.runs.torch_archive import stored_arguments, torn

TRACKER = "latest_checkpointed_iteration.txt"
ITERATION = re.compile(r"iter_(\d{7,})")
SHARD = re.compile(r"mp_rank_(\d{2})(?:_(\d{3}))?(?:_(\d{3}))?")
LONGEST = 18  # digits of an iteration
MODEL, OPTIMIZER = "model_optim_rng.pt", "distrib_optim.pt"

Iteration: TypeAlias = "int | Literal['release']"
Format: TypeAlias = Literal["torch", "torch_dist", "zarr", "unknown"]


@dataclass(frozen=True, slots=True)
class Tracker:
    """What the tracker file says. `problem` is None when it names an iteration."""

    iteration: Iteration | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One `iter_*` folder. `size` in bytes, `modified` in s since the epoch; `reason` is None when it is complete."""

    path: str
    iteration: Iteration
    format: Format
    tp: int | None
    pp: int | None
    size: int
    modified: float
    tracked: bool
    reason: str | None

    @property
    def complete(self) -> bool:
        return self.reason is None

    def as_json(self) -> dict[str, Any]:
        keys = ("path", "iteration", "format", "tp", "pp", "size", "tracked")
        return {**{key: getattr(self, key) for key in keys}, "complete": self.complete, "reason": self.reason}


def read_tracker(save: Path) -> Tracker:
    """The tracker file of a save folder."""
    try:
        content = (save / TRACKER).read_bytes()
    except FileNotFoundError:
        return Tracker(None, f"There is no {TRACKER}.")
    except OSError as error:
        return Tracker(None, f"{TRACKER} cannot be read: {error.strerror}.")
    text = content.decode(errors="replace").strip()
    if text == "release":
        return Tracker("release", None)
    if text.isascii() and text.isdigit() and len(text) <= LONGEST and int(text) > 0:
        return Tracker(int(text), None)
    if not text:
        return Tracker(None, f"{TRACKER} is empty: the job ended in the instant of writing it.")
    return Tracker(None, f"{TRACKER} holds {text[:20]!r}, which is no iteration.")


def save_folders(base: Path) -> list[Path]:
    """The folders below `base` that hold checkpoints themselves: `base`, or its dated folders BASE/DATE/TIME, newest first.

    Looks two levels deep and never into a checkpoint, so that trees of 10,000 files cost a few folder listings.
    """
    if is_save_folder(base):
        return [base]
    found = [
        folder for date in _folders(base) for folder in (date, *_folders(date)) if is_save_folder(folder)
    ]
    return sorted(found, key=str, reverse=True)


def is_save_folder(folder: Path) -> bool:
    try:
        with os.scandir(folder) as entries:
            return any(
                entry.name in (TRACKER, "release") or ITERATION.fullmatch(entry.name) for entry in entries
            )
    except OSError:
        return False


def linked_folders(save: Path) -> list[Path]:
    """The save folders that a branch's links lead to."""
    return sorted({real(entry).parent for entry in _folders(save) if entry.is_symlink()})


def checkpoints(save: Path) -> list[Checkpoint]:
    """All checkpoints of one save folder, newest iteration first; also one that only the tracker names."""
    tracker = read_tracker(save)
    found = [
        describe(folder, tracked=tracker.iteration == iteration)
        for folder in _folders(save)
        if (iteration := iteration_of(folder)) is not None
    ]
    if tracker.iteration is not None and all(c.iteration != tracker.iteration for c in found):
        path = save / folder_name(tracker.iteration)
        found.append(
            Checkpoint(
                str(path),
                tracker.iteration,
                "unknown",
                None,
                None,
                0,
                0.0,
                True,
                "The tracker names it, but its link leads nowhere: what this branch began with was moved or removed."
                if path.is_symlink()
                else "The tracker names it, but there is no such folder.",
            )
        )
    return sorted(
        found, key=lambda c: float("inf") if c.iteration == "release" else c.iteration, reverse=True
    )


def iteration_of(folder: Path) -> Iteration | None:
    if folder.name == "release":
        return "release"
    match = ITERATION.fullmatch(folder.name)
    iteration = int(match[1]) if match else None
    # iter_00000100 is no name that Megatron-LM gives, or would look for
    return iteration if iteration is not None and folder.name == folder_name(iteration) else None


def folder_name(iteration: Iteration) -> str:
    return "release" if iteration == "release" else f"iter_{iteration:07d}"


def describe(folder: Path, *, tracked: bool) -> Checkpoint:
    """One `iter_*` folder, judged by its files. Never raises for what the disk holds."""
    iteration = iteration_of(folder)
    if iteration is None:
        raise ValueError(f"{folder} is not a checkpoint folder")
    try:
        size, modified = measure(folder)
        kind, tp, pp, reason = _judge(folder)
    except OSError as error:
        size, modified, kind, tp, pp, reason = (
            0,
            0.0,
            "unknown",
            None,
            None,
            f"It cannot be read: {error.strerror}.",
        )
    if reason is not None and not tracked:
        reason += " The tracker does not name it: it is being written, or left over."
    return Checkpoint(str(folder), iteration, kind, tp, pp, size, modified, tracked, reason)


def measure(folder: Path) -> tuple[int, float]:
    """(bytes in all files, newest modification time in s) below `folder`."""
    size, modified = 0, folder.stat().st_mtime
    for root, _, names in os.walk(folder):
        for name in names:
            stat = os.stat(os.path.join(root, name), follow_symlinks=False)  # noqa: PTH116, PTH118  (10,000 files)
            size += stat.st_size
            modified = max(modified, stat.st_mtime)
    return size, modified


def _judge(folder: Path) -> tuple[Format, int | None, int | None, str | None]:
    """(format, TP, PP, why not complete)."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    shards = [name for name in names if SHARD.fullmatch(name)]
    if shards:
        tp, pp, reason = _judge_torch(folder, shards)
        return "torch", tp, pp, reason
    metadata = read_json(folder / "metadata.json")
    if "metadata.json" in names or "common.pt" in names or any(name.endswith(".distcp") for name in names):
        kind: Format = "zarr" if (metadata or {}).get("sharded_backend") == "zarr" else "torch_dist"
        tp, pp = _stored_layout(folder / "common.pt")
        return kind, tp, pp, dist_problem(folder, names, metadata)
    return (
        "unknown",
        None,
        None,
        "It is empty." if not names else "It holds no shards (mp_rank_* or *.distcp).",
    )


def _judge_torch(folder: Path, shards: list[str]) -> tuple[int, int, str | None]:
    ranks = [
        tuple(int(part or 0) for part in match.groups())
        for name in shards
        if (match := SHARD.fullmatch(name))
    ]
    stored = _stored_layout(folder / shards[0] / MODEL)
    tp, pp = stored[0] or max(rank[0] for rank in ranks) + 1, stored[1] or max(rank[1] for rank in ranks) + 1
    last = max(rank[2] for rank in ranks) + 1
    wanted = tp * pp * last
    if len(shards) < wanted:
        return tp, pp, f"{wanted - len(shards)} of {wanted} shards are missing (TP {tp} × PP {pp})."
    return tp, pp, next(_shard_problems(folder, shards), None)


def _shard_problems(folder: Path, shards: list[str]) -> Iterator[str]:
    for name in shards:
        model = folder / name / MODEL
        if not model.is_file():
            yield f"{name}/{MODEL} is missing."
        elif problem := torn(model):
            yield f"{name}/{MODEL} {problem}."
    with_optimizer = [name for name in shards if (folder / name / OPTIMIZER).is_file()]
    if 0 < len(with_optimizer) < len(shards):
        lacking = next(name for name in shards if name not in with_optimizer)
        yield f"{lacking}/{OPTIMIZER} is missing, though other shards have one."
    for name in with_optimizer:
        if problem := torn(folder / name / OPTIMIZER):
            yield f"{name}/{OPTIMIZER} {problem}."


def _stored_layout(file: Path) -> tuple[int | None, int | None]:
    """(TP, PP) from the arguments inside a checkpoint file, None where it does not say."""
    arguments = (stored_arguments(file) if file.is_file() else None) or {}
    tp, pp = arguments.get("tensor_model_parallel_size"), arguments.get("pipeline_model_parallel_size")
    return (tp if isinstance(tp, int) and 0 < tp < 10_000 else None), (
        pp if isinstance(pp, int) and 0 < pp < 10_000 else None
    )


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if _is_folder(entry))
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """False for a link that goes in a circle or where we may not look: it must not hide the rest."""
    try:
        return entry.is_dir()
    except OSError:
        return False
