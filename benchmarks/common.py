"""What the benchmarks share: small runs to measure, ratios, and what to say of the machine."""

from __future__ import annotations

import json
import os
import platform
import re
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
    """Print a figure with its aim. With BENCH_JSON, append it to that file as a line of JSON, too."""
    if path := os.environ.get("BENCH_JSON"):
        program = {"program": Path(sys.argv[0]).name, "process": os.getpid()}
        figure = {**program, "what": what, "measured": measured, "aim": aim}
        with Path(path).open("a") as file:
            print(json.dumps(figure), file=file)
    print(f"  {what:<58} {measured:<24} {f'aim: {aim}' if aim else ''}".rstrip())


def processor() -> str:
    """Return the processor's name, as Linux gives it, or its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    return names[0] if names else platform.machine()


def file_system(folder: Path) -> str:
    """Return the kind of file system that holds a folder, such as ext4."""
    done = subprocess.run(["stat", "--file-system", "--format", "%T", folder], capture_output=True, text=True)
    return done.stdout.strip() or "unknown file system"


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
    """Return the peak of this process's memory. What getrusage says includes that of the process that started it."""
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak) / 1024


CALL_BYTES = 512 << 10
"""The most bytes of one call that writes to a file: larger calls take much longer on some virtual machines."""
