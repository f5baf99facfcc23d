"""The driver's own structures, through the real `pynvml`: what a GPU says reaches the checks of a launch and of the doctor.

Only the C library is a stand-in: its functions fill what pynvml hands them, as the driver does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pynvml  # pyright: ignore[reportMissingTypeStubs]
import pytest

from backends.launch.facts import Facts
from backends.launch.site_checks import check_site
from backends.models.layout import check
from backends.models.presets import find
from backends.models.problem import Problem
from backends.runs.plan import RunPlan
from backends.telemetry import nvml as reading
from backends.telemetry.nvml import GpuReader, Nvml
from backends.telemetry.readings import GpuProcess, GpuReading

GIB = 2**30
SUCCESS = 0
real: Any = pynvml
NOT_KNOWN = real.NVML_VALUE_NOT_AVAILABLE_ulonglong.value


class Driver:
    """GPUs of 80 GiB, of which `used` GiB are taken, by a process each where it is not 0."""

    def __init__(self, *used: int, memory_of_processes: int | None = None) -> None:
        self.used, self.memory_of_processes = used, memory_of_processes

    def function(self, name: str) -> Callable[..., int]:
        """As pynvml looks one up. Raises its error for one that an old driver does not have."""
        found = getattr(self, name, None)
        if found is None:
            raise real.NVMLError(real.NVML_ERROR_FUNCTION_NOT_FOUND)
        return cast("Callable[..., int]", found)

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.used)
        return SUCCESS

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        ctypes.cast(device, ctypes.POINTER(ctypes.c_void_p))[0] = 1 + index.value
        return SUCCESS

    def nvmlDeviceGetName(self, handle: Any, name: Any, size: Any) -> int:
        name.value = b"NVIDIA H100 80GB HBM3"
        return SUCCESS

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:
        used = self.used[_index(handle)] * GIB
        assert memory._obj.version == reading.MEMORY_V2
        memory._obj.total, memory._obj.used, memory._obj.reserved = 80 * GIB, used, GIB // 2
        return SUCCESS

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        rates._obj.gpu, rates._obj.memory = 97, 40
        return SUCCESS

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle: Any, count: Any, found: Any) -> int:
        used = self.used[_index(handle)]
        if found is None:
            count._obj.value = int(used > 0)
            return real.NVML_ERROR_INSUFFICIENT_SIZE if used else SUCCESS
        found[0].pid = 4242
        known = self.memory_of_processes
        found[0].usedGpuMemory = NOT_KNOWN if known is None else known
        count._obj.value = 1
        return SUCCESS


def _index(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value - 1  # type: ignore[operator]


def read(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> tuple[GpuReading, ...]:
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", driver.function)
    return GpuReader(cast("Nvml", pynvml), lambda pid: ("python", "alice")).read()


def test_names_and_constants_equal_those_of_pynvml() -> None:
    names = [name for name in vars(Nvml) if name.startswith("nvml")]
    assert len(names) > 10 and all(callable(getattr(pynvml, name)) for name in names)
    for own, theirs in (
        (reading.MEMORY_V2, real.nvmlMemory_v2),
        (reading.TEMPERATURE_GPU, real.NVML_TEMPERATURE_GPU),
        (reading.CLOCK_SM, real.NVML_CLOCK_SM),
        (reading.ECC_UNCORRECTED, real.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
        (reading.ECC_VOLATILE, real.NVML_VOLATILE_ECC),
        (reading.GPU_IS_LOST, real.NVML_ERROR_GPU_IS_LOST),
    ):
        assert own == theirs


def test_readings_that_an_old_driver_lacks_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    (gpu,) = read(Driver(0), monkeypatch)
    assert (gpu.name, gpu.memory_total, gpu.utilization) == ("NVIDIA H100 80GB HBM3", 80 * GIB, 97)
    assert (gpu.power, gpu.temperature, gpu.ecc_errors, gpu.processes) == (None, None, None, ())


def problems(plan: RunPlan, gpus: tuple[GpuReading, ...]) -> list[Problem]:
    facts = Facts(gpus=gpus)
    return [*check_site(plan, facts), *check(plan.arguments, facts.resources(plan))]


def test_used_gpus_and_too_little_memory_are_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpus = read(Driver(60, 60, 0, 0, 0, 0, 0, 0, memory_of_processes=60 * GIB), monkeypatch)
    assert gpus[0].processes == (GpuProcess(4242, 60 * GIB, "python", "alice"),)
    recipe = find("gpt3-7b").arguments
    plan = RunPlan("train", "megatron", "mpirun", arguments=recipe, save=str(tmp_path / "x"), processes=2)
    first, *_ = [p for p in problems(plan, gpus) if p.field == "gpus"]
    assert "In use: GPU 0,1 (python of alice), 20 of 80 GiB free on GPU 0." in first.message
    assert first.severity == "error" and first.fix == {"gpus": ("2,3",)}
    memory = [p for p in problems(plan, read(Driver(0, 0), monkeypatch)) if "of 80 GiB" in p.message]
    assert len(memory) == 1 and memory[0].message.startswith("The fullest GPU needs about")
    eight = RunPlan("train", "megatron", "mpirun", arguments=recipe, save=str(tmp_path / "x"), processes=8)
    assert not [p for p in problems(eight, read(Driver(*[0] * 8), monkeypatch)) if p.field == "gpus"]


def test_a_process_without_a_memory_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    (gpu,) = read(Driver(30), monkeypatch)
    assert gpu.processes == (GpuProcess(4242, None, "python", "alice"),)
