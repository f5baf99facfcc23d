"""GPUs through NVIDIA's management library (the module `pynvml` of nvidia-ml-py).

Units of NVML: memory in bytes, power in mW, temperature in °C, clocks in MHz. A call may hang for as long as the driver
does, so only the probe process makes them. See https://docs.nvidia.com/deploy/nvml-api/.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from backends.telemetry.readings import GpuProcess, GpuReading
from backends.text import clean_line

T = TypeVar("T")
Describe = Callable[[int], tuple[str | None, str | None]]

# Numbers of nvml.h: stable, and the same in every version of the module.
MEMORY_V2 = 0x02000028
TEMPERATURE_GPU = 0
CLOCK_SM = 1
ECC_UNCORRECTED, ECC_VOLATILE = 1, 0
NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 4, 9, 12
GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH = 15, 16, 18
THROTTLING = {  # nvmlClocksEventReasons; idle (1), set clocks (2), boost (0x10) and display (0x100) are no throttling
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
NOTES = {
    DRIVER_NOT_LOADED: "The NVIDIA driver is not loaded. Try `nvidia-smi` as root, or ask who runs this machine.",
    LIBRARY_NOT_FOUND: "This machine has no NVIDIA GPU (no driver library was found).",
    VERSION_MISMATCH: "The NVIDIA driver was updated while in use: its library and kernel module differ until a restart.",
    NO_PERMISSION: "This user may not ask the NVIDIA driver.",
}
GPU_NOTES = {
    GPU_IS_LOST: "lost: it no longer answers the driver; reset or restart the machine",
    RESET_REQUIRED: "needs a reset before it can be used again",
}


class Nvml(Protocol):
    """The part of the module `pynvml` that is used here. Every call may raise its `NVMLError` (with `.value`)."""

    @property
    def NVMLError(self) -> type[Exception]: ...

    def nvmlInit(self) -> object: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...
    def nvmlDeviceGetName(self, handle: Any) -> str | bytes: ...
    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any: ...
    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int: ...
    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int: ...
    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int: ...
    def nvmlDeviceGetClockInfo(self, handle: Any, type: int) -> int: ...
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any) -> int: ...
    def nvmlDeviceGetTotalEccErrors(self, handle: Any, errorType: int, counterType: int) -> int: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Sequence[Any]: ...


class DriverSaysNo(Exception):
    """The driver answers, but gives no GPUs. The text says why; `gone`: asking again is useless."""

    def __init__(self, note: str, *, gone: bool = False) -> None:
        super().__init__(note)
        self.gone = gone


class GpuReader:
    """Reads every GPU of this machine through `nvml`. `describe` gives name and user of a process id."""

    def __init__(self, nvml: Nvml, describe: Describe) -> None:
        self._nvml = nvml
        self._describe = describe

    def open(self) -> None:
        """Wake the driver; takes seconds on a machine without persistence mode. Raises DriverSaysNo."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise self._refusal(error) from None

    def read(self) -> tuple[GpuReading, ...]:
        """All GPUs now. One that fails has a `note` and no numbers. Raises DriverSaysNo when there are none at all."""
        try:
            count = self._nvml.nvmlDeviceGetCount()
        except self._nvml.NVMLError as error:
            raise self._refusal(error) from None
        if not count:
            raise DriverSaysNo("The NVIDIA driver knows no GPU on this machine.", gone=True)
        return tuple(self._gpu(index) for index in range(count))

    def _refusal(self, error: Exception) -> DriverSaysNo:
        value = _value(error)
        note = NOTES.get(value, f"The NVIDIA driver refuses: {clean_line(str(error), 200)}.")
        return DriverSaysNo(note, gone=value == LIBRARY_NOT_FOUND)

    def _gpu(self, index: int) -> GpuReading:
        nvml = self._nvml
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            used, total = self._memory(handle)
        except nvml.NVMLError as error:
            return GpuReading(index, note=GPU_NOTES.get(_value(error), clean_line(str(error), 200)))
        ask = self._ask
        name = ask(nvml.nvmlDeviceGetName, handle)
        rates = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        reasons = ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return GpuReading(
            index=index,
            name=clean_line(name.decode(errors="replace") if isinstance(name, bytes) else name, 200)
            if name
            else None,
            memory_used=used,
            memory_total=total,
            utilization=None if rates is None else rates.gpu,
            power=_watts(ask(nvml.nvmlDeviceGetPowerUsage, handle)),
            power_limit=_watts(ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)),
            temperature=ask(nvml.nvmlDeviceGetTemperature, handle, TEMPERATURE_GPU),
            sm_clock=ask(nvml.nvmlDeviceGetClockInfo, handle, CLOCK_SM),
            processes=self._processes(handle),
            throttling=None if reasons is None else throttling(reasons),
            ecc_errors=ask(nvml.nvmlDeviceGetTotalEccErrors, handle, ECC_UNCORRECTED, ECC_VOLATILE),
        )

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        """(used, total) in bytes. Only version 2 leaves out what the driver keeps for itself, as nvidia-smi does."""
        for version in (MEMORY_V2, None):
            try:
                memory = self._nvml.nvmlDeviceGetMemoryInfo(handle, version)
            except self._nvml.NVMLError as error:
                if _value(error) in GPU_NOTES:
                    raise
            else:
                return memory.used, memory.total
        return None, None

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        found = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        if found is None:
            return None
        return tuple(
            GpuProcess(entry.pid, entry.usedGpuMemory, *self._describe(entry.pid)) for entry in found
        )

    def _ask(self, call: Callable[..., T], *arguments: Any) -> T | None:
        """What `call` answers; None when this GPU or driver cannot say."""
        try:
            return call(*arguments)
        except self._nvml.NVMLError:
            return None


def throttling(reasons: int) -> tuple[str, ...]:
    """Words for NVML's bit set of what keeps the clocks low."""
    return tuple(word for bit, word in THROTTLING.items() if reasons & bit)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _value(error: Exception) -> int:
    return getattr(error, "value", -1)
