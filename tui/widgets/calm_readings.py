"""Readings jitter, and each redraw costs bytes over SSH: a shown number stays until the reading differs enough."""

from __future__ import annotations

from dataclasses import replace

from backends.telemetry.readings import GpuReading, HostReading, Snapshot

READINGS = 10  # CPU readings that are averaged: those of a busy machine jump from second to second
# Smaller changes are not shown.
CPU = 8.0  # percentage points
MEMORY = 0.02  # share of the host's memory
UTILIZATION = 3.0  # percentage points
POWER = 5.0  # W
TEMPERATURE = 2.0  # °C


class CalmReadings:
    """Remembers the readings shown of each host."""

    def __init__(self) -> None:
        self._shown: dict[str, Snapshot] = {}
        self._cpu: dict[str, float] = {}  # the mean by host

    def settle(self, new: Snapshot) -> Snapshot:
        """`new`, but with the number that is shown wherever the new one differs too little from it."""
        name = new.host.host
        mean = _mean(self._cpu.get(name), new.host.cpu_percent)
        if mean is not None:
            self._cpu[name] = mean
        host = replace(new.host, cpu_percent=mean)
        before = self._shown.get(name)
        if before is not None:
            gpus = {gpu.index: gpu for gpu in before.gpus}
            host = _settled_host(before.host, host)
            new = replace(new, gpus=tuple(_settled_gpu(gpus.get(gpu.index), gpu) for gpu in new.gpus))
        self._shown[name] = replace(new, host=host)
        return self._shown[name]


def _mean(before: float | None, now: float | None) -> float | None:
    return now if before is None or now is None else before + (now - before) / READINGS


def _settled_host(before: HostReading, now: HostReading) -> HostReading:
    return replace(
        now,
        cpu_percent=_settled(before.cpu_percent, now.cpu_percent, CPU),
        memory_used=_settled(before.memory_used, now.memory_used, MEMORY * (now.memory_total or 0)),
    )


def _settled_gpu(before: GpuReading | None, now: GpuReading) -> GpuReading:
    if before is None:
        return now
    return replace(
        now,
        utilization=_settled(before.utilization, now.utilization, UTILIZATION),
        power=_settled(before.power, now.power, POWER),
        temperature=_settled(before.temperature, now.temperature, TEMPERATURE),
    )


def _settled(before: float | None, now: float | None, step: float) -> float | None:
    return before if before is not None and now is not None and abs(before - now) < step else now
