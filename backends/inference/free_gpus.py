"""Which GPUs of this machine have room for a server."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice

from backends.errors import UserError
from backends.runs.catalog import run_folders
from backends.telemetry.collector import Collector
from backends.telemetry.readings import GpuReading
from backends.workspace import Workspace

HERE = ("local", "mpirun")  # launchers whose jobs use GPUs of this machine
LOOK = 8.0  # s that the driver may take to answer
IDLE = 2**30  # bytes; a GPU with no more memory in use is free
NEWEST = 50  # runs that are asked which GPUs they hold


def gpu_readings() -> Sequence[GpuReading]:
    """What the driver says now; empty without a GPU or a driver."""
    collector = Collector(LOOK)
    try:
        snapshot = collector.next(timeout=LOOK)
        return snapshot.gpus if snapshot else ()
    finally:
        collector.close()


def roomiest(readings: Sequence[GpuReading], count: int) -> tuple[int, ...] | None:
    """The `count` GPUs with the most free memory, by index; None if the memory of fewer is known."""
    known = [(gpu.memory_total - gpu.memory_used, gpu.index) for gpu in readings
             if gpu.memory_total is not None and gpu.memory_used is not None]  # fmt: skip
    if len(known) < count:
        return None
    chosen = sorted(known, key=lambda each: (-each[0], each[1]))[:count]
    return tuple(sorted(index for _, index in chosen))


def unused(readings: Sequence[GpuReading], count: int, held: Collection[int] = ()) -> tuple[int, ...] | None:
    """The first `count` GPUs that nobody uses and no run holds; None if there are fewer.

    The GPUs in `held` count as used whatever the driver says: it does not always show processes of other containers, and
    a small model hardly fills a large GPU.
    """
    free = [
        gpu.index
        for gpu in readings
        if gpu.memory_used is not None and gpu.memory_used <= IDLE and not gpu.processes and gpu.index not in held
    ]  # fmt: skip
    return tuple(free[:count]) if len(free) >= count else None


def held_by_runs(workspace: Workspace) -> set[int]:
    """The GPUs of this machine that runs of the workspace use, or are about to use."""
    held: set[int] = set()
    for folder in islice(run_folders(workspace), NEWEST):
        try:
            state, plan = folder.state(), folder.plan()
        except UserError:
            continue
        if (state is None or not state.over) and plan.trainer != "demo" and plan.launcher in HERE:
            held |= set(range(plan.processes) if plan.gpus is None else plan.gpus)
    return held
