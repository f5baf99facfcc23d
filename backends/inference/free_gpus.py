"""Which GPUs of this machine have room for a server."""

from __future__ import annotations

from collections.abc import Sequence

from backends.telemetry.collector import Collector
from backends.telemetry.readings import GpuReading

LOOK = 8.0  # s that the driver may take to answer
FREE = 0.05  # a GPU with at most this share of its memory in use is nobody's


def gpu_readings() -> Sequence[GpuReading]:
    """What the driver says now; nothing where there is no GPU or no driver."""
    collector = Collector(LOOK)
    try:
        snapshot = collector.next(timeout=LOOK)
        return snapshot.gpus if snapshot else ()
    finally:
        collector.close()


def roomiest(readings: Sequence[GpuReading], count: int) -> tuple[int, ...] | None:
    """The `count` GPUs with the most free memory, by index; None where that is not known of so many."""
    known = [(gpu.memory_total - gpu.memory_used, gpu.index) for gpu in readings
             if gpu.memory_total is not None and gpu.memory_used is not None]  # fmt: skip
    if len(known) < count:
        return None
    chosen = sorted(known, key=lambda each: (-each[0], each[1]))[:count]
    return tuple(sorted(index for _, index in chosen))


def unused(readings: Sequence[GpuReading], count: int) -> tuple[int, ...] | None:
    """The first `count` GPUs that nobody uses; None where there are fewer."""
    free = [
        gpu.index
        for gpu in readings
        if gpu.memory_total and gpu.memory_used is not None and gpu.memory_used <= FREE * gpu.memory_total
        and not gpu.processes
    ]  # fmt: skip
    return tuple(free[:count]) if len(free) >= count else None
