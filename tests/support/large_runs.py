"""Runs with many steps, written in large flushes: what a training of a day leaves, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from support.runs import CREATED, EPOCH
from tensortrial.format.checksum import document_bytes
from tensortrial.format.index_types import IndexedStep
from tensortrial.format.index_writer import indexed_rows, write_compacted
from tensortrial.format.record import Plan, Step, TensorSpec
from tensortrial.format.schema import RunInfo, WorkerInfo, end_path, index_path
from tensortrial.mode import ModeKeys
from tensortrial.storage.open import open_storage
from tensortrial.write.claim import claim

_STEPS_OF_FILE = 10_000


def write_large(out: Path, names: Sequence[str], steps: int, spike: tuple[str, int]) -> None:
    """Write a run of norms near 1, one of which is 1000: that of a tensor at a step."""
    storage = open_storage(out)
    claim(storage, RunInfo(CREATED, "test", id="a"), WorkerInfo("worker_0", 1, CREATED, []))
    specs = [TensorSpec(Plan(name, ("weights",), False, ("l2",)), "float32", (8, 8), 256) for name in names]
    random, previous = np.random.default_rng(0), ""
    for flush, first in enumerate(range(0, steps, _STEPS_OF_FILE)):
        indexed = [
            IndexedStep(Step(ModeKeys.TRAIN, step, step)) for step in range(first, min(first + _STEPS_OF_FILE, steps))
        ]
        for each in indexed:
            each.add(specs, [EPOCH + each.step.global_step * 1_000_000] * len(names))
        table, summary = indexed_rows("worker_0", indexed, "")
        norms = 1 + random.standard_normal(len(table)) * 0.05
        if first <= spike[1] < first + len(indexed):
            norms[(spike[1] - first) * len(names) + list(names).index(spike[0])] = 1000
        table = table.set_column(table.schema.get_field_index("l2"), "l2", pa.array(norms))
        path = index_path("worker_0", first, flush)
        sink = storage.sink(path)
        write_compacted(sink, table, replace(summary, compacted_at=None, previous=previous))
        sink.publish()
        previous = path
    storage.replace(end_path("worker_0"), document_bytes({"ended_at": CREATED, "worker": "worker_0", "session": 0}))
