"""The limits that the peers are held against: what a copy in memory, one plain file, `np.load` and DuckDB take.

python -m peers.limits FOLDER --work '{…}'
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import median_seconds, seconds

from .work import Tensors
from .worker import evict

_TIMES = 11
_POINTS = 200


def copying(work: Tensors) -> dict[str, float]:
    """Copies of all tensors, one after the other, into existing memory."""
    target = np.empty(work.floats, np.float32)
    arrays = [work.array(layer, step) for step in range(work.steps) for layer in range(work.per_step)]

    def copy() -> None:
        for array in arrays:
            np.copyto(target, array)

    copy()
    return {"copy": seconds(copy)}


def one_file(folder: Path, work: Tensors) -> dict[str, float]:
    """All tensors written to one plain file, a call each, and read again into existing memory."""
    path = folder / "plain"
    arrays = [work.array(layer, step) for step in range(work.steps) for layer in range(work.per_step)]
    begun = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for array in arrays:
            file.write(array)
    written = time.perf_counter() - begun
    target = np.empty(work.floats, np.float32)

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(target):
                pass

    found = {"write": written, "read": seconds(read)}
    path.unlink()
    return found


def same_bytes(folder: Path, work: Tensors) -> dict[str, float]:
    """Reading one tensor's values at all steps, or one step's tensors, from a file that holds nothing else."""
    series, step = folder / "series", folder / "step"
    work.series(work.names[0]).tofile(series)
    np.stack([work.array(layer, 0) for layer in range(work.per_step)]).tofile(step)
    found = {}
    for name, path in (("series", series), ("at", step)):
        found[name] = median_seconds(lambda path=path: np.fromfile(path, np.float32), _TIMES)
        found[f"{name} cold"] = _cold(path, lambda path=path: np.fromfile(path, np.float32))
    return found


def mapped(folder: Path, work: Tensors) -> dict[str, float]:
    """A copy of one value out of one .npy file of all, mapped before, or mapped for it."""
    path = folder / "all.npy"
    shape = (work.steps, work.per_step, work.floats)
    made = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for step in range(work.steps):
        for layer in range(work.per_step):
            made[step, layer] = work.array(layer, step)
    made.flush()
    del made
    numbers = iter(range(10 * _POINTS))

    def position() -> tuple[int, int]:
        number = next(numbers)
        return number * 104_729 % work.steps, number * 7919 % work.per_step

    array = np.load(path, mmap_mode="r")
    found = {"mapped": median_seconds(lambda array=array: np.array(array[position()]), _POINTS)}
    found["load and map"] = median_seconds(lambda: np.array(np.load(path, mmap_mode="r")[position()]), _POINTS)
    del array
    found["load and map cold"] = _cold(path, lambda: np.array(np.load(path, mmap_mode="r")[position()]))
    return found


def sorted_parquet(folder: Path, work: Tensors) -> dict[str, float]:
    """DuckDB's group by over one Parquet file of the mean and l2 of each tensor at each step, by name and step."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [name for name in work.names for _ in range(work.steps)]
    steps = list(range(work.steps)) * work.per_step
    numbers = np.random.default_rng(1).standard_normal((2, len(names)))
    path = folder / "perfect.parquet"
    pq.write_table(pa.table({"name": names, "step": steps, "mean": numbers[0], "l2": numbers[1]}), path)

    begun = time.perf_counter()
    import duckdb

    connection = duckdb.connect()
    connection.sql("select 1").fetchall()
    started = time.perf_counter() - begun
    query = f"select name, avg(mean), avg(l2) from read_parquet('{path}') group by name"
    first = seconds(lambda: connection.sql(query).fetchall())
    return {
        "group by, start": started,
        "group by, first": first,
        "group by": median_seconds(lambda: connection.sql(query).fetchall(), _TIMES),
    }


def _cold(path: Path, read: Callable[[], object]) -> float:
    os.sync()
    taken = []
    for _ in range(5):
        evict([path])
        taken.append(seconds(read))
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--work", type=json.loads)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    work = Tensors(**arguments.work)
    found = {"count": work.count, **copying(work)}
    for limit in (one_file, same_bytes, mapped, sorted_parquet):
        found |= limit(arguments.folder, work)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
