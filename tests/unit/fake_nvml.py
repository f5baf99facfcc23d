"""A `pynvml` that replays readings taken on two H200s (tests/data/logs/2xh200-nvml.jsonl: MiB, mW, °C, MHz)."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


class FakeNvml:
    """Implements `backends.telemetry.nvml.Nvml`. `refuses` maps a call's name to the code it fails with."""

    NVMLError = NVMLError

    def __init__(self, recording: Path, refuses: dict[str, int] | None = None) -> None:
        self.frames: list[list[dict[str, Any]]] = [
            json.loads(line) for line in recording.read_text().splitlines()
        ]
        self.refuses = refuses or {}
        self.frame = -1

    def _maybe_refuse(self, call: str) -> None:
        if call in self.refuses:
            raise NVMLError(self.refuses[call])

    def nvmlInit(self) -> None:
        self._maybe_refuse("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:
        """Also turns to the next moment of the recording (the reader asks for the count once a reading)."""
        self._maybe_refuse("nvmlDeviceGetCount")
        self.frame = min(self.frame + 1, len(self.frames) - 1)
        return len(self.frames[self.frame])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:
        self._maybe_refuse(f"nvmlDeviceGetHandleByIndex:{index}")
        return self.frames[self.frame][index]

    def nvmlDeviceGetName(self, handle: dict[str, Any]) -> bytes:
        return b"NVIDIA H200"

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any], version: int | None = None) -> SimpleNamespace:
        self._maybe_refuse(f"nvmlDeviceGetMemoryInfo:{version}")
        return SimpleNamespace(used=handle["used"] * MIB, total=handle["total"] * MIB)

    def nvmlDeviceGetUtilizationRates(self, handle: dict[str, Any]) -> SimpleNamespace:
        self._maybe_refuse("nvmlDeviceGetUtilizationRates")
        return SimpleNamespace(gpu=handle["util"], memory=0)

    def nvmlDeviceGetPowerUsage(self, handle: dict[str, Any]) -> int:
        self._maybe_refuse("nvmlDeviceGetPowerUsage")
        return handle["power"]

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: dict[str, Any]) -> int:
        return 700_000

    def nvmlDeviceGetTemperature(self, handle: dict[str, Any], sensor: int) -> int:
        return handle["temp"]

    def nvmlDeviceGetClockInfo(self, handle: dict[str, Any], type: int) -> int:
        return handle["sm"]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: dict[str, Any]) -> int:
        return handle["thr"]

    def nvmlDeviceGetTotalEccErrors(self, handle: dict[str, Any], errorType: int, counterType: int) -> int:
        return handle["ecc"]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: dict[str, Any]) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=memory) for pid, memory in handle["procs"]]
