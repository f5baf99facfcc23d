"""Eight H100s at work, for benches on machines without one: put this folder first in PYTHONPATH.

Implements `backends.telemetry.nvml.Nvml`; every reading wobbles a little, as real ones do.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

MIB = 1 << 20


class NVMLError(Exception):
    """Nothing fails here."""


def nvmlInit() -> None:
    random.seed(0)


def nvmlDeviceGetCount() -> int:
    return 8


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetName(handle: int) -> str:
    return "NVIDIA H100 80GB HBM3"


def nvmlDeviceGetMemoryInfo(handle: int, version: int | None = None) -> SimpleNamespace:
    return SimpleNamespace(used=(75_000 + handle) * MIB, total=81_559 * MIB)


def nvmlDeviceGetUtilizationRates(handle: int) -> SimpleNamespace:
    return SimpleNamespace(gpu=random.choice((98, 99, 99, 100)))


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    return random.randint(676_000, 700_000)


def nvmlDeviceGetEnforcedPowerLimit(handle: int) -> int:
    return 700_000


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    return 60 + handle + random.choice((0, 0, 0, 1))


def nvmlDeviceGetClockInfo(handle: int, type: int) -> int:
    return 1980


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    return 4


def nvmlDeviceGetTotalEccErrors(handle: int, errorType: int, counterType: int) -> int:
    return 0


def nvmlDeviceGetComputeRunningProcesses(handle: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=1, usedGpuMemory=74_000 * MIB)]
