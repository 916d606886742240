"""The memory that a process takes, for programs that tests start."""

from __future__ import annotations

from pathlib import Path


def peak_bytes() -> int:
    """Return the most memory that this process has held since its program began, in bytes.

    `ru_maxrss` begins with the peak of the process that started the program, here often that of pytest.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024
