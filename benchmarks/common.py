"""What the benchmarks share: small runs to measure, ratios, and what to say of the machine."""

from __future__ import annotations

import mmap
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path


def header(title: str) -> None:
    """Say what is measured, and on what."""
    packages = "  ".join(f"{name} {version(name)}" for name in ("duckdb", "pyarrow", "numpy"))
    print(f"{title}\n{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {packages}")


def line(what: str, measured: str, aim: str = "") -> None:
    print(f"  {what:<58} {measured:<24} {f'aim: {aim}' if aim else ''}".rstrip())


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder on the disk, removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="tensortrial-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def median_seconds(call: Callable[[], object], repeat: int) -> float:
    return statistics.median(seconds(call) for _ in range(repeat))


def in_fresh_process(program: str, *arguments: object) -> str:
    """What another run of a benchmark prints: fresh caches, fresh memory."""
    command = [sys.executable, program, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# A hypervisor that takes unused memory back has it after some seconds.
_TAKEN_BACK_SECONDS = 20
_TOUCHED_GIGABYTES = 8
_DEAR_MICROSECONDS = 4.0
_PROBED_BYTES = 64 << 20
_MOST_PROBES = 64
CALL_BYTES = 512 << 10
"""What one call writes to a file: larger ones take much longer on some virtual machines, see `DearPages`."""


class DearPages:
    """Memory whose fresh pages are dear, as on a virtual machine that gives unused memory back to its host.

    A part of the memory is used once and freed; some seconds later the host has it. What was freed since is given to a
    file in the page cache. Then a page that is touched for the first time takes up to 12 us instead of 0.5 to 1. On
    other machines this changes nothing.
    """

    def __init__(self) -> None:
        gigabytes = min(_TOUCHED_GIGABYTES, _available_bytes() // 2 >> 30)
        for memory in [_touched_gigabyte() for _ in range(gigabytes)]:
            memory.close()
        time.sleep(_TAKEN_BACK_SECONDS)
        self._file = tempfile.TemporaryFile(prefix="tensortrial-bench-", buffering=0)  # noqa: SIM115 - kept

    def wait(self) -> float:
        """Use up what was freed, 4 GB at most. Return the microseconds of the processor that a fresh page takes."""
        data = b"1" * CALL_BYTES
        for _ in range(_MOST_PROBES):
            begun = time.thread_time()
            for _ in range(0, _PROBED_BYTES, CALL_BYTES):
                self._file.write(data)
            taken = (time.thread_time() - begun) / (_PROBED_BYTES // mmap.PAGESIZE) * 1e6
            if taken > _DEAR_MICROSECONDS:
                break
        return taken


def dear_pages(wanted: bool) -> DearPages | None:
    """Return dear pages if they are wanted, and print what one takes."""
    if not wanted:
        return None
    dear = DearPages()
    line("a fresh page of the page cache", f"{dear.wait():.1f} us of the processor")
    return dear


def _available_bytes() -> int:
    for each in Path("/proc/meminfo").read_text().splitlines():
        if each.startswith("MemAvailable:"):
            return int(each.split()[1]) << 10
    return 0


def _touched_gigabyte() -> mmap.mmap:
    memory = mmap.mmap(-1, 1 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    for begin in range(0, len(memory), mmap.PAGESIZE):
        memory[begin] = 1
    return memory
