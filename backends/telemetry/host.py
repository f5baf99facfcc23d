"""CPU and memory of this machine, from psutil."""

from __future__ import annotations

import os
import platform

import psutil

from backends.telemetry.readings import HostReading
from backends.text import clean_line


class HostProbe:
    """Reads this machine. The CPU use is the mean since the previous reading; the first reading has none."""

    def __init__(self) -> None:
        self._name = clean_line(platform.node() or "localhost", 200)
        self._cores = os.cpu_count()
        self._ticks: tuple[float, float] | None = None

    def read(self) -> HostReading:
        """Never raises. None: the system does not say."""
        used, total = _memory()
        return HostReading(self._name, self._cores, self._cpu_percent(), _load(), used, total)

    def _cpu_percent(self) -> float | None:
        before, self._ticks = self._ticks, _ticks()
        if before is None or self._ticks is None:
            return None
        elapsed = self._ticks[1] - before[1]
        busy = self._ticks[0] - before[0]
        return min(max(100 * busy / elapsed, 0.0), 100.0) if elapsed > 0 else None


def _ticks() -> tuple[float, float] | None:
    """(busy, all) seconds of all cores. Guests are already part of user time; waiting for a disk is idle."""
    try:
        times = psutil.cpu_times()
    except (OSError, RuntimeError, ValueError):
        return None
    everything = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return everything - times.idle - getattr(times, "iowait", 0.0), everything


def _memory() -> tuple[int | None, int | None]:
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError, ValueError, KeyError):
        return None, None
    return memory.total - memory.available, memory.total


def _load() -> float | None:
    try:
        return os.getloadavg()[0]
    except OSError:
        return None
