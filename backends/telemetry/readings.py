"""Readings of GPUs and host at one moment. None: not available. A missing reading is never 0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with memory on a GPU. `name` and `user` are None for a process of another container."""

    pid: int
    memory: int | None = None  # bytes
    name: str | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU at one moment, by the driver's own index (not that of CUDA_VISIBLE_DEVICES)."""

    index: int
    name: str | None = None
    memory_used: int | None = None  # bytes, without the driver's own reserve
    memory_total: int | None = None  # bytes
    utilization: float | None = None  # percent of the time in which some kernel ran
    power: float | None = None  # W
    power_limit: float | None = None  # W
    temperature: float | None = None  # °C
    sm_clock: float | None = None  # MHz
    processes: tuple[GpuProcess, ...] | None = None
    throttling: tuple[str, ...] | None = None  # why the clocks are reduced; (): they are not
    ecc_errors: int | None = None  # uncorrected, since the driver was loaded
    note: str | None = None  # why the driver has no readings of this GPU


@dataclass(frozen=True, slots=True)
class HostReading:
    """One machine at one moment."""

    host: str
    cores: int | None = None
    cpu_percent: float | None = None  # of all cores together, 0 to 100
    load: float | None = None  # processes that run or wait for a CPU, mean of a minute
    memory_used: int | None = None  # bytes that are not available for new processes
    memory_total: int | None = None  # bytes


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One node at one moment. `gpu_note` tells why there are no GPU readings, or that they are old."""

    time: float  # seconds since 1970
    host: HostReading
    gpus: tuple[GpuReading, ...] = ()
    gpu_note: str | None = None
