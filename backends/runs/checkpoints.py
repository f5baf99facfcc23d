"""Describes checkpoints from disk, without torch: what is there, whether it is complete, and if not, why.

Megatron-LM writes the shards first, then the metadata, then the tracker file; see megatron/training/checkpointing.py of
core_r0.8.0 and megatron/core/dist_checkpointing.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from backends.files import read_json, read_regular, real
from backends.runs.distributed_checkpoint import dist_problem
from backends.runs.torch_archive import stored_arguments
from backends.runs.torch_checkpoint import MODEL, SHARD, Layout, torch_problem

TRACKER = "latest_checkpointed_iteration.txt"
ITERATION = re.compile(r"iter_(\d{7,})")
LONGEST = 18  # digits of an iteration that is believed

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
    layout: Layout
    size: int
    modified: float
    tracked: bool
    reason: str | None

    @property
    def complete(self) -> bool:
        return self.reason is None

    def as_json(self) -> dict[str, Any]:
        keys = ("path", "iteration", "format", "size", "tracked", "complete", "reason")
        return {**asdict(self.layout), **{key: getattr(self, key) for key in keys}}


def read_tracker(save: Path) -> Tracker:
    """The tracker file of a save folder."""
    try:
        content = read_regular(save / TRACKER, 1 << 16)
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
    """The folders that hold checkpoints: `base` and its dated folders BASE/DATE/TIME, each once, newest first, `base` last.

    Looks two levels deep and never into a checkpoint, so that trees of 10,000 files cost a few folder listings.
    """
    found: dict[Path, Path] = {}
    for date in _folders(base):
        if iteration_of(date) is None:
            for folder in (date, *_folders(date)):
                if is_save_folder(folder):
                    found.setdefault(real(folder), folder)  # `latest`, a link to one of them, sorts behind
    newest_first = sorted(found.values(), key=str, reverse=True)
    return [*newest_first, base] if is_save_folder(base) else newest_first


def is_save_folder(folder: Path) -> bool:
    """Whether `folder` holds a tracker file or checkpoints. False for a folder that cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return any(
                entry.name in (TRACKER, "release") or ITERATION.fullmatch(entry.name) for entry in entries
            )
    except OSError:
        return False


def linked_folders(save: Path) -> list[Path]:
    """The save folders that the links in a branch's folder lead to."""
    return sorted({real(entry).parent for entry in _folders(save) if entry.is_symlink()})


def checkpoints(save: Path) -> list[Checkpoint]:
    """All checkpoints of one save folder, newest iteration first, including one that only the tracker names."""
    tracker = read_tracker(save)
    found = [
        describe(folder, tracked=tracker.iteration == iteration)
        for folder in _folders(save)
        if (iteration := iteration_of(folder)) is not None
    ]
    if tracker.iteration is not None and all(c.iteration != tracker.iteration for c in found):
        path = save / folder_name(tracker.iteration)
        reason = (
            "The tracker names it, but its link leads nowhere: the checkpoint that this branch began with was moved or removed."
            if path.is_symlink()
            else "The tracker names it, but there is no such folder."
        )
        found.append(Checkpoint(str(path), tracker.iteration, "unknown", Layout(), 0, 0.0, True, reason))
    return sorted(
        found, key=lambda c: float("inf") if c.iteration == "release" else c.iteration, reverse=True
    )


def iteration_of(folder: Path) -> Iteration | None:
    """The iteration of an `iter_*` folder, by its name; None for any other folder."""
    if folder.name == "release":
        return "release"
    match = ITERATION.fullmatch(folder.name)
    iteration = int(match[1]) if match else None
    # Megatron-LM neither writes nor looks for a name such as iter_00000100.
    return iteration if iteration is not None and folder.name == folder_name(iteration) else None


def folder_name(iteration: Iteration) -> str:
    """The name that Megatron-LM gives to the folder of an iteration."""
    return "release" if iteration == "release" else f"iter_{iteration:07d}"


def describe(folder: Path, *, tracked: bool) -> Checkpoint:
    """One `iter_*` folder, judged by its files. Raises no OSError: the reason names what cannot be read."""
    iteration = iteration_of(folder)
    if iteration is None:
        raise ValueError(f"{folder} is not a checkpoint folder")
    size, modified, kind, layout = 0, 0.0, "unknown", Layout()
    try:
        size, modified = measure(folder)
        kind, layout, reason = _judge(folder)
    except OSError as error:
        reason = f"It cannot be read: {error.strerror}."
    if reason is not None and not tracked:
        reason += " The tracker does not name it: it is being written, or its save did not end."
    return Checkpoint(str(folder), iteration, kind, layout, size, modified, tracked, reason)


def measure(folder: Path) -> tuple[int, float]:
    """(bytes in all files, newest modification time in s) below `folder`."""
    size, modified = 0, folder.stat().st_mtime
    for root, _, names in os.walk(folder):
        for name in names:
            stat = os.stat(os.path.join(root, name), follow_symlinks=False)  # noqa: PTH116, PTH118  (10,000 files)
            size += stat.st_size
            modified = max(modified, stat.st_mtime)
    return size, modified


def _judge(folder: Path) -> tuple[Format, Layout, str | None]:
    """(format, layout, why not complete)."""
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries)
    if shards := [name for name in names if SHARD.fullmatch(name)]:
        stored, named = _stored_layout(folder / shards[0] / MODEL), Layout.named(shards)
        layout = Layout(stored.tp or named.tp, stored.pp or named.pp, stored.ep or named.ep)
        return "torch", layout, torch_problem(folder, shards, layout)
    if "metadata.json" in names or "common.pt" in names or any(name.endswith(".distcp") for name in names):
        metadata = read_json(folder / "metadata.json")
        kind: Format = "zarr" if (metadata or {}).get("sharded_backend") == "zarr" else "torch_dist"
        return kind, _stored_layout(folder / "common.pt"), dist_problem(folder, names, metadata)
    reason = "It holds no shards (mp_rank_* or *.distcp)." if names else "It is empty."
    return "unknown", Layout(), reason


def _stored_layout(file: Path) -> Layout:
    """From the arguments inside a checkpoint file."""
    return Layout.stored((stored_arguments(file) if file.is_file() else None) or {})


def _folders(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            return sorted(Path(entry.path) for entry in entries if _is_folder(entry))
    except OSError:
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """False for a link loop and for what may not be read: it must not hide the other folders."""
    try:
        return entry.is_dir()
    except OSError:
        return False
