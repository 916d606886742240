"""How long the first answers of the page take, each as a ratio to DuckDB's plain scan of the same files.

The scan reads the columns name, mode_step and l2 of all index files and computes a maximum for each name.

    python benchmarks/page.py --tensors 1000 --steps 10000
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import numpy as np
import pyarrow as pa
from common import header, scratch

from tensortrial.format.checksum import document_bytes
from tensortrial.format.index_types import IndexedStep
from tensortrial.format.index_writer import indexed_rows, write_compacted
from tensortrial.format.record import Plan, Step, TensorSpec
from tensortrial.format.schema import RunInfo, WorkerInfo, end_path, index_path
from tensortrial.mode import ModeKeys
from tensortrial.page import Page
from tensortrial.storage.open import open_storage
from tensortrial.write.claim import claim

_CREATED = "2026-01-01T00:00:00+00:00"
_STEPS_OF_FILE = 500


def write(out: str, tensors: int, steps: int) -> None:
    """Write a run in large flushes: the rows of one flush, with other steps and norms in each file."""
    storage = open_storage(out)
    claim(storage, RunInfo(_CREATED, "test"), WorkerInfo("worker_0", 1, _CREATED, []))
    specs = [
        TensorSpec(Plan(f"net.layers.{i // 4}.part_{i % 4}", ("weights",), False, ("l2",)), "float32", (64, 64), 16384)
        for i in range(tensors)
    ]
    random = np.random.default_rng(0)
    for flush, first in enumerate(range(0, steps, _STEPS_OF_FILE)):
        indexed = [IndexedStep(Step(ModeKeys.TRAIN, step, step)) for step in range(first, first + _STEPS_OF_FILE)]
        for each in indexed:
            each.add(specs, [1_767_225_600_000_000_000 + each.step.global_step * 1_000_000] * tensors)
        table, summary = indexed_rows("worker_0", indexed, "")
        norms = pa.array(1 + random.standard_normal(len(table)) * 0.05)
        table = table.set_column(table.schema.get_field_index("l2"), "l2", norms)
        path = index_path("worker_0", first, flush)
        sink = storage.sink(path)
        write_compacted(sink, table, replace(summary, compacted_at=None, previous=None))
        sink.publish()
    storage.replace(end_path("worker_0"), document_bytes({"ended_at": _CREATED, "worker": "worker_0", "session": 0}))


def timed(served: Page, path: str, **parameters: Any) -> tuple[float, int]:
    """Return the seconds that a request takes, and the bytes of its answer on the wire."""
    begun = time.perf_counter()
    with httpx.stream("GET", f"{served.url}api/{path}", params=parameters, timeout=600) as response:
        size = sum(len(part) for part in response.iter_raw())
        response.raise_for_status()
    return time.perf_counter() - begun, size


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tensors", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    header(f"The page: {options.tensors} tensors x {options.steps} steps")
    with scratch() as folder:
        run = str(Path(folder) / "run")
        write(run, options.tensors, options.steps)
        files = str(Path(run) / "index" / "**" / "*.parquet")
        query = "select name, max(l2), max(mode_step) from read_parquet($files) group by name"
        begun = time.perf_counter()
        duckdb.connect().execute(query, {"files": files}).fetchall()
        scan = time.perf_counter() - begun
        begun = time.perf_counter()
        with Page(run) as served:
            served.start()
            print(f"the page is served after {time.perf_counter() - begun:.2f} s; a scan takes {scan:.2f} s")
            tiles = {"run": "run", "statistic": "l2", "mode": "TRAIN", "columns": 300}
            at = {"run": "run", "mode": "TRAIN", "name": "net.layers.0.part_0"}
            for title, path, parameters in (
                ("info", "info", {}),
                ("tiles, first", "tiles", tiles),
                ("tiles, again", "tiles", tiles),
                ("tiles, zoomed", "tiles", {**tiles, "from": 100, "to": 300}),
                ("tensor", "tensor", at),
                ("series", "series", {**at, "statistics": "l2"}),
                ("availability", "availability", {"run": "run", "mode": "TRAIN"}),
            ):
                seconds, size = timed(served, path, **parameters)
                print(f"{title:14} {seconds:6.2f} s  {seconds / scan:6.2f} of a scan  {size / 1000:8.1f} kB")


if __name__ == "__main__":
    main()
