"""The default memory limit of the SQL engine, which may share its process with training."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

ENVIRONMENT_VARIABLE = "TENSORTRIAL_MEMORY_LIMIT"
_SHARE = 4
_MOST_BYTES = 4 << 30
# Address space of a thread: its stack, and the allocator's reservation.
_BYTES_OF_THREAD = 1 << 30


def default_memory_limit() -> str:
    """Return the memory limit of an engine as text with a unit, such as '8GB'.

    It is the value of the environment variable, if set, else a quarter of the memory of this process, at most 4 GiB.
    """
    limit = os.environ.get(ENVIRONMENT_VARIABLE, "").strip()
    return limit or f"{min(_MOST_BYTES, memory_of_process() // _SHARE) >> 20}MiB"


def memory_of_process() -> int:
    """Return the memory of this process in bytes: the least of machine, control group and resource limit."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_limits()])


def threads_within_limit() -> int | None:
    """Return the number of threads that fit into the address space; None if that is unlimited."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return None
    try:
        used = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 1
    return max(1, min(os.cpu_count() or 1, (limit - used) // _BYTES_OF_THREAD))


def _limits() -> Iterator[int]:
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        yield limit
    for file in _control_group_files():
        try:
            text = file.read_text("ascii").strip()
        except OSError:
            continue
        if text.isdecimal():
            yield int(text)


def _control_group_files() -> Iterator[Path]:
    yield Path("/sys/fs/cgroup/memory.max")
    yield Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")
    try:
        groups = Path("/proc/self/cgroup").read_text("utf-8").splitlines()
    except OSError:
        return
    for group in groups:
        number, _, path = group.split(":", 2)
        if number == "0":
            yield Path(f"/sys/fs/cgroup{path}/memory.max")
