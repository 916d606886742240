"""The GPUs of the machine, by NVIDIA's management library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any

_MILLIWATTS = 1000.0


class Gpus:
    """The GPUs that the driver knows, with its numbers, whatever CUDA_VISIBLE_DEVICES says.

    Args:
        nvml: The module `pynvml`, initialised.
    """

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml = nvml
        count: int = nvml.nvmlDeviceGetCount()
        self._handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]

    def read(self) -> dict[str, float]:
        """Return what each GPU reports. One that lacks a sensor, or is divided into instances, reports less."""
        found: dict[str, float] = {}
        for index, handle in enumerate(self._handles):
            for read in (self._utilization, self._memory, self._temperature, self._power):
                with suppress(self._nvml.NVMLError):
                    found |= {f"gpu_{index}/{name}": value for name, value in read(handle).items()}
        return found

    def _utilization(self, handle: Any) -> Mapping[str, float]:
        return {"utilization_percent": self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu}

    def _memory(self, handle: Any) -> Mapping[str, float]:
        memory = self._nvml.nvmlDeviceGetMemoryInfo(handle)
        return {"memory_used_bytes": memory.used, "memory_total_bytes": memory.total}

    def _temperature(self, handle: Any) -> Mapping[str, float]:
        sensor = self._nvml.NVML_TEMPERATURE_GPU
        return {"temperature_celsius": self._nvml.nvmlDeviceGetTemperature(handle, sensor)}

    def _power(self, handle: Any) -> Mapping[str, float]:
        return {"power_watts": self._nvml.nvmlDeviceGetPowerUsage(handle) / _MILLIWATTS}


def find_gpus(load: Callable[[], ModuleType] | None = None) -> Gpus | None:
    """Return the GPUs of the machine; None without NVIDIA's driver, or without nvidia-ml-py.

    Args:
        load: Returns the module `pynvml`, initialised.
    """
    try:
        return Gpus((load or _load)())
    except Exception:  # noqa: BLE001 - no library, no driver, or one that does not answer: a machine without GPUs
        return None


def _load() -> ModuleType:
    import pynvml  # optional: most machines without a GPU lack it

    pynvml.nvmlInit()
    module: ModuleType = pynvml
    return module
