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


class DearPages:
    """Memory whose fresh pages are dear, as on a virtual machine that gives unused memory back to its host.

    A part of the memory is used once and freed; some seconds later the host has it. Then a page that is touched for the
    first time takes 5 us instead of 0.5, in the page cache as well. On other machines this changes nothing.
    """

    def __init__(self) -> None:
        gigabytes = min(_TOUCHED_GIGABYTES, _available_bytes() // 2 >> 30)
        for memory in [_touched_gigabyte() for _ in range(gigabytes)]:
            memory.close()

    @staticmethod
    def wait() -> float:
        """Wait until the host has what is unused. Return the microseconds of the processor that a fresh page takes."""
        time.sleep(_TAKEN_BACK_SECONDS)
        with scratch() as folder, open(folder / "pages", "wb", buffering=0) as file:
            data = b"1" * (1 << 20)
            begun = time.thread_time()
            for _ in range(8):
                file.write(data)
            return (time.thread_time() - begun) / (8 * len(data) // mmap.PAGESIZE) * 1e6


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
