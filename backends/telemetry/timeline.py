"""Telemetry over time: one series for each metric, for plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backends.megatron.series import Curve, Series
from backends.telemetry.readings import GpuReading, HostReading, Snapshot

GIB = 1 << 30


class Timeline:
    """One series for each metric. Not thread-safe: one thread fills it and then hands it over."""

    def __init__(self) -> None:
        self._series: dict[str, Series] = {}
        self._newest: dict[str, float] = {}

    def add(self, snapshots: Sequence[Snapshot]) -> None:
        """Add `snapshots`, oldest first. Those older than the newest present one are ignored."""
        several = len({snapshot.host.host for snapshot in snapshots}) > 1
        columns: dict[str, tuple[list[int], list[float]]] = {}
        for snapshot in snapshots:
            second = int(snapshot.time)
            for name, value in values(snapshot, several=several):
                times, column = columns.setdefault(name, ([], []))
                if not times or second > times[-1]:
                    times.append(second)
                    column.append(value)
        for name, (times, column) in columns.items():
            series = self._series.setdefault(name, Series())
            last = series.iterations[-1] if len(series.iterations) else -1
            first = next((row for row, time in enumerate(times) if time > last), len(times))
            series.extend(times[first:], column[first:])
            self._newest[name] = column[-1]

    def metrics(self) -> list[str]:
        return list(self._series)

    def newest(self, metric: str) -> float | None:
        return self._newest.get(metric)

    def curve(self, metric: str, start: float, stop: float, buckets: int) -> Curve | None:
        """`metric` between two times, thinned to `buckets`; times and xs in s since the epoch. None: no such metric."""
        series = self._series.get(metric)
        return None if series is None else series.curve(start, stop, buckets)


def values(snapshot: Snapshot, *, several: bool) -> Iterator[tuple[str, float]]:
    """(metric, value) for each reading of `snapshot`. With `several` nodes the name begins with the host's."""
    prefix = f"{snapshot.host.host} " if several else ""
    for gpu in snapshot.gpus:
        for name, value in _of_gpu(gpu):
            if value is not None:
                yield f"{prefix}gpu {gpu.index} {name}", value
    for name, value in _of_host(snapshot.host):
        if value is not None:
            yield f"{prefix}host {name}", value


def _of_gpu(gpu: GpuReading) -> Iterator[tuple[str, float | None]]:
    yield "memory (GiB)", None if gpu.memory_used is None else gpu.memory_used / GIB
    yield "utilization (%)", gpu.utilization
    yield "power (W)", gpu.power
    yield "temperature (°C)", gpu.temperature


def _of_host(host: HostReading) -> Iterator[tuple[str, float | None]]:
    yield "memory (GiB)", None if host.memory_used is None else host.memory_used / GIB
    yield "CPU (%)", host.cpu_percent
