"""The memory that a process takes, for programs that tests start."""

from __future__ import annotations

import ctypes
import gc
import resource
from pathlib import Path


def peak_bytes() -> int:
    """Return the most memory that this process has held since its program began, in bytes.

    `ru_maxrss` begins with the peak of the process that started the program, here often that of pytest.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def resident_bytes() -> int:
    """Return the memory that this process holds now, in bytes, once it has returned all that is free to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
