"""The GPUs of the machine, by NVIDIA's management library."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

_MILLIWATTS = 1000.0


class Gpus:
    """The GPUs that the driver knows, by the driver's numbers: CUDA_VISIBLE_DEVICES has no effect."""

    def __init__(self, nvml: ModuleType) -> None:
        """`nvml` is the module `pynvml`, initialized."""
        self._nvml = nvml
        self._gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]

    def read(self) -> dict[str, float]:
        """Return what each GPU reports. One that lacks a sensor, or is divided into instances, reports less."""
        nvml, found = self._nvml, dict[str, float]()
        readings: dict[str, Callable[[Any], float]] = {
            "utilization_percent": lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
            "memory_used_bytes": lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used,
            "memory_total_bytes": lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total,
            "temperature_celsius": lambda gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
            "power_watts": lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / _MILLIWATTS,
        }
        for index, gpu in enumerate(self._gpus):
            for name, read in readings.items():
                with suppress(nvml.NVMLError):
                    found[f"gpu_{index}/{name}"] = read(gpu)
        return found


def find_gpus() -> Gpus | None:
    """Return the GPUs of the machine; None without NVIDIA's driver, or without nvidia-ml-py."""
    try:
        import pynvml  # optional: most machines without a GPU lack it

        pynvml.nvmlInit()
        return Gpus(pynvml)
    except Exception:  # noqa: BLE001 - no library, no driver, or one that does not answer: a machine without GPUs
        return None
