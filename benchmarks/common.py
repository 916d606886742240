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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tensortrial.storage.base import Storage

WORKER = "worker_0"


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


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU time of all threads of this process during a call."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


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


def claimed(out: str) -> Storage:
    """Begin a run of one worker, WORKER; return its storage."""
    from tensortrial.format.schema import RunInfo, WorkerInfo
    from tensortrial.storage.open import open_storage
    from tensortrial.write.claim import claim

    storage, began = open_storage(out), "2026-01-01T00:00:00+00:00"
    claim(storage, RunInfo(began, id="measured"), WorkerInfo(WORKER, 1, began, []))
    return storage


def write_index(
    out: str, tensors: Mapping[str, str], steps: int, columns_of: Callable[[np.ndarray], dict[str, pa.Array]]
) -> None:
    """Write a run whose index is compacted, without raw values.

    `tensors` has the collection of each tensor. Each file has 1,000 steps. `columns_of` receives these and returns the
    columns that differ from run to run.
    """
    import numpy as np
    import pyarrow as pa

    from tensortrial.format.index_types import IndexSummary, NamedTensor, StepSummary
    from tensortrial.format.index_writer import write_compacted
    from tensortrial.format.schema import INDEX_SCHEMA, index_path

    storage = claimed(out)
    name_set = tuple(NamedTensor(name, (collection,)) for name, collection in tensors.items())
    previous = ""
    for begin in range(0, steps, 1000):
        inside = np.arange(begin, min(begin + 1000, steps))
        count = len(inside) * len(tensors)
        each_step, of_tensor = np.repeat(inside, len(tensors)), pa.array(np.tile(np.arange(len(tensors)), len(inside)))
        offsets = np.arange(count + 1, dtype=np.int32)
        texts = {"mode": "TRAIN", "worker": WORKER, "dtype": "float32"}
        columns = {name: pa.repeat(pa.scalar(text), count) for name, text in texts.items()}
        columns |= {
            "name": pa.array(tensors.keys()).take(of_tensor),
            "mode_step": pa.array(each_step),
            "global_step": pa.array(each_step),
            "nbytes": pa.array(np.full(count, 256)),
            "saved_at": pa.array(each_step * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
            "collections": pa.ListArray.from_arrays(pa.array(offsets), pa.array(tensors.values()).take(of_tensor)),
        }
        columns |= columns_of(inside)
        arrays = [columns[each.name] if each.name in columns else pa.nulls(count, each.type) for each in INDEX_SCHEMA]
        table = pa.Table.from_arrays(arrays, schema=INDEX_SCHEMA)
        said = [StepSummary("TRAIN", step, step, step * 1_000_000, 0) for step in inside.tolist()]
        path = index_path(WORKER, begin, begin).replace(".parquet", f"-{begin + len(inside) - 1:08d}.parquet")
        sink = storage.sink(path)
        write_compacted(sink, table, IndexSummary(count, said, [name_set], [], previous))
        sink.publish()
        previous = path
