"""The readings of one sample: of the process, of its machine, and of the GPUs."""

from __future__ import annotations

import time
from typing import Any

from tensortrial.errors import MissingExtra

from .gpus import find_gpus

try:
    import psutil
except ImportError as exc:
    raise MissingExtra("psutil", "system", "system_metrics") from exc

VERSIONS = {"psutil": psutil.__version__}


class Probe:
    """Reads what the process and its machine do. Shares and rates are those since the reading before."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._gpus = find_gpus()
        self._read_at = time.monotonic()
        self._counted = self._counters()
        # The first call of each only begins to measure.
        self._process.cpu_percent(None)
        psutil.cpu_percent(None)

    def read(self) -> dict[str, float]:
        """Return the readings by their names."""
        process, memory = self._process.memory_info(), psutil.virtual_memory()
        found = {
            "process/cpu_percent": self._process.cpu_percent(None),
            "process/rss_bytes": process.rss,
            "cpu_percent": psutil.cpu_percent(None),
            "memory_used_bytes": memory.used,
            "memory_available_bytes": memory.available,
            **self._rates(),
        }
        return found if self._gpus is None else {**found, **self._gpus.read()}

    def _rates(self) -> dict[str, float]:
        now, counted = time.monotonic(), self._counters()
        seconds, self._read_at = now - self._read_at, now
        before, self._counted = self._counted, counted
        if seconds <= 0:
            return {}
        # A counter falls where a disk or an interface is gone.
        return {
            f"{name}_per_second": max(0, count - before[name]) / seconds
            for name, count in counted.items()
            if name in before
        }

    def _counters(self) -> dict[str, int]:
        # Each is None in a container that shows no disk, or no interface.
        disk: Any = psutil.disk_io_counters()
        network: Any = psutil.net_io_counters()
        found: dict[str, int] = {}
        if disk is not None:
            found |= {"disk_read_bytes": disk.read_bytes, "disk_written_bytes": disk.write_bytes}
        if network is not None:
            found |= {"network_received_bytes": network.bytes_recv, "network_sent_bytes": network.bytes_sent}
        return found
