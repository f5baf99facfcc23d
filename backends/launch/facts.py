"""Facts about this machine that a plan depends on: data, vocabulary, flags of the clone, disk, GPUs, speed of earlier runs.

It reads files and asks the driver, which blocks: call it from threads or commands.
"""

from __future__ import annotations

import functools
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from backends.disks import room
from backends.errors import UserError
from backends.launch.mpirun import GPT2_TOKENIZER, vocabulary
from backends.launch.slurm import shape
from backends.megatron.indexed_dataset import IndexedDataset, read_indexed_dataset
from backends.models.arguments import data_prefixes, value_of
from backends.models.layout_checks import Resources
from backends.models.presets import find
from backends.models.throughput import Throughput
from backends.programs import RealPrograms
from backends.runs.catalog import run_folders
from backends.runs.plan import RunPlan
from backends.runs.watching import newest_values
from backends.settings import read_settings
from backends.telemetry.readings import GpuReading
from backends.workspace import Workspace

T = TypeVar("T")
THROUGHPUT = "throughput per GPU (TFLOP/s/GPU)"
ROOM_AGE = 20.0  # s for which the free space of a disk is remembered
EARLIER = 30  # runs whose speed is looked up
# Two runs with equal values of these are about equally fast.
DECIDES_SPEED = (
    "--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--micro-batch-size", "--fp8-format",
    "--fp16", "--bf16", "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--context-parallel-size",
    "--recompute-granularity", "--recompute-activations", "--transformer-impl", "--swiglu",
)  # fmt: skip
FLAG = re.compile(r"""["'](--[A-Za-z0-9][\w-]*)["']""")


@dataclass(frozen=True, slots=True)
class Facts:
    """None: not known. `gpus` is () when there are none, None when the driver was not asked or did not answer."""

    datasets: tuple[IndexedDataset, ...] = ()
    vocab_size: int | None = None
    known_flags: frozenset[str] = frozenset()
    disk_free: int | None = None  # bytes that may still be written where the plan saves
    gpus: tuple[GpuReading, ...] | None = None
    measured: Throughput | None = None  # of an earlier run, or from the preset
    tasks: int | None = None  # processes a node, when a batch system assigns the nodes

    def resources(self, plan: RunPlan) -> Resources:
        """The input of the layout checks."""
        tokens = [data.tokens for data in self.datasets]
        documents = [data.sequences for data in self.datasets if data.sequences is not None]
        dtypes = {data.dtype for data in self.datasets if data.dtype}
        chosen = self.chosen(plan)
        memory = [gpu.memory_total for gpu in chosen if gpu.memory_total]
        return Resources(
            gpus=plan.processes,
            gpu_memory=min(memory) if memory else None,
            gpus_per_node=self.tasks or max(1, plan.processes // max(1, len(plan.hosts))),
            data_tokens=sum(filter(None, tokens)) if tokens and all(tokens) else None,
            data_dtype=dtypes.pop() if len(dtypes) == 1 else None,
            fewest_documents=min(documents) if documents else None,
            vocab_size=self.vocab_size,
            known_flags=self.known_flags,
        )

    def gpu_name(self, plan: RunPlan) -> str | None:
        """The driver's name for the GPUs of the plan, if known."""
        return next((gpu.name for gpu in self.chosen(plan) if gpu.name), None)

    def chosen(self, plan: RunPlan) -> tuple[GpuReading, ...]:
        """The GPUs of this machine that the plan uses; the first ones when it names none."""
        here = () if self.tasks else self.gpus or ()
        if plan.gpus is not None:
            return tuple(gpu for gpu in here if gpu.index in plan.gpus)
        return here if plan.hosts else here[: plan.processes]


def gather(plan: RunPlan, workspace: Workspace, gpus: tuple[GpuReading, ...] | None = None) -> Facts:
    """All facts but the GPUs, which take seconds: `gpus` come from `read_gpus`. Raises UserError for unreadable settings."""
    megatron = plan.trainer == "megatron"
    prefixes = data_prefixes(plan.arguments) if megatron else ()
    return Facts(
        datasets=tuple(read_indexed_dataset(workspace.megatron / prefix) for prefix in prefixes),
        vocab_size=_vocab_size(plan, workspace) if megatron else None,
        known_flags=_known_flags(workspace) if megatron else frozenset(),
        disk_free=_room(Path(plan.save), int(time.monotonic() // ROOM_AGE)) if plan.save else None,
        gpus=gpus if plan.trainer != "demo" and plan.launcher == "mpirun" else None,
        measured=known_throughput(plan, workspace) if megatron else None,
        tasks=shape(plan, read_settings(workspace.settings).slurm).tasks
        if plan.launcher == "slurm"
        else None,
    )


def read_gpus(
    limit: float = 8.0, environment: Mapping[str, str] = os.environ
) -> tuple[GpuReading, ...] | None:
    """The GPUs of this machine; () when there are none, None when the driver does not answer within `limit` s.

    Where the environment has CUDA_VISIBLE_DEVICES (a batch system's, or the user's own), only those.
    """
    from backends.telemetry.collector import Collector

    try:
        collector = Collector()
    except OSError:
        return None
    try:
        snapshot = collector.next(limit)
    finally:
        collector.close()
    if snapshot is None or (not snapshot.gpus and "no NVIDIA GPU" not in (snapshot.gpu_note or "")):
        return None
    return visible(snapshot.gpus, environment.get("CUDA_VISIBLE_DEVICES", ""))


def visible(gpus: tuple[GpuReading, ...], devices: str) -> tuple[GpuReading, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES numbers; all when it is unset or holds no numbers."""
    words = [word.strip() for word in devices.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        return gpus
    return tuple(gpu for gpu in gpus if str(gpu.index) in words)


def known_throughput(plan: RunPlan, workspace: Workspace) -> Throughput | None:
    """The throughput of an earlier run with the same model and layout, else that of the preset."""
    if (measured := measured_throughput(plan, workspace)) is not None:
        return measured
    try:
        preset = find(plan.preset, workspace)
    except UserError:  # its preset no longer exists
        return None
    if preset.throughput is None:
        return None
    return Throughput(preset.throughput, f"as the preset {preset.name} says")


def measured_throughput(plan: RunPlan, workspace: Workspace) -> Throughput | None:
    """The last throughput that the newest run with the same model and layout printed."""
    wanted = _speed_of(plan)
    for folder in islice(run_folders(workspace), EARLIER):
        try:
            earlier = folder.plan()
        except UserError:
            continue
        if earlier.kind == "train" and earlier.trainer == plan.trainer and _speed_of(earlier) == wanted:
            value = newest_values(folder.log).get(THROUGHPUT)
            if value and value > 0:
                return Throughput(value, f"as {folder.name} had it")
    return None


def _speed_of(plan: RunPlan) -> list[str | None]:
    return [value_of(plan.arguments, flag) for flag in DECIDES_SPEED]


def _vocab_size(plan: RunPlan, workspace: Workspace) -> int | None:
    """The count in GPT-2's file if it is there. Some other tokenizers are known by name."""
    if (value_of(plan.arguments, "--tokenizer-type") or GPT2_TOKENIZER) != GPT2_TOKENIZER:
        return None
    file, _ = vocabulary(plan, workspace)
    return _of_file(workspace.megatron / file, _entries) if file else None


def _known_flags(workspace: Workspace) -> frozenset[str]:
    return _of_file(workspace.megatron / "megatron/training/arguments.py", _flags) or frozenset()


def _entries(text: str) -> int | None:
    value = json.loads(text)
    return len(value) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownArgumentType]


def _flags(text: str) -> frozenset[str]:
    """All quoted words that look like a flag. pretrain_gpt.py itself adds none in core_r0.8.0."""
    return frozenset(FLAG.findall(text))


def _of_file(path: Path, read: Callable[[str], T]) -> T | None:
    """`read` of the file, cached until the file changes; None when it cannot be read."""
    try:
        status = path.stat()
        return _remembered(path, status.st_mtime_ns, status.st_size, read)
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=16)
def _room(folder: Path, moment: int) -> int | None:
    """`room`, cached: the quota may come from a file server, and a form asks with every key."""
    return room(folder, RealPrograms(os.environ))


@functools.lru_cache(maxsize=16)
def _remembered(path: Path, changed: int, size: int, read: Callable[[str], T]) -> T:
    return read(path.read_text(encoding="utf-8", errors="replace"))
