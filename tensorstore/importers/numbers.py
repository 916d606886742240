"""The index files of a run that has only numbers, written from columns.

A writer takes a step at a time, which costs several times as much for each number as the file itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..format.arrow_arrays import broadcast, lists, numbers, texts
from ..format.index_types import IndexSummary, NamedTensor, StepSummary
from ..format.index_writer import write_index
from ..format.record import Plan
from ..format.schema import INDEX_SCHEMA, FirstFlush, folder_of, index_path
from ..mode import ModeKeys
from ..storage.open import Storage, translated

STEPS_END = 10**12
"""The first global step that no run has: its folders are numbered with twelve digits."""
_FILE_ROWS = 1 << 20
"""The least number of rows of an index file, except the last one. A killed import loses at most one file."""
_DTYPE, _NBYTES = "float64", 8
_MODES = ["", *(mode.name for mode in sorted(ModeKeys, key=lambda mode: mode.value))]
"""The names of the modes by their numbers, which count from 1."""

Integers = npt.NDArray[np.int64]


class Numbers(NamedTuple):
    """Numbers in the order of their global steps, as columns of equal length, shape (n,). No name repeats in a step."""

    name: Integers
    """Indices into the plans."""
    mode: Integers
    """The modes' numbers."""
    mode_step: Integers
    global_step: Integers
    saved_at: Integers
    """Nanoseconds since 1970, UTC."""
    value: npt.NDArray[np.float64]

    def part(self, rows: slice) -> Numbers:
        """Return some of the rows."""
        return Numbers._make(column[rows] for column in self)


def publish_numbers(
    target: Storage,
    worker: str,
    first: FirstFlush,
    plans: Sequence[Plan],
    rows: Numbers,
    advance: Callable[[float], object],
) -> FirstFlush:
    """Publish numbers as index files of a worker, which the caller has claimed. Return the flush after them.

    `first` is the first flush of these numbers. `advance` is called with the number of rows of each file.
    """
    for part in _parts(rows):
        path = index_path(worker, int(part.global_step[0]), first.number)
        path = max(path, f"{first.folder}/{path.rpartition('/')[2]}")  # readers look for new files after the known ones
        sink = target.sink(path)
        try:
            with translated(path, "write"):
                write_index(sink, _table(worker, plans, part), _summary(plans, part, first.previous))
            sink.publish()
        finally:
            sink.abort()
        first = FirstFlush(first.number + 1, path, folder_of(path))
        advance(len(part.value))
    return first


def _parts(rows: Numbers) -> Iterator[Numbers]:
    """Yield the rows of whole steps, about _FILE_ROWS at a time."""
    begin, count = 0, len(rows.value)
    while begin < count:
        last = rows.global_step[min(begin + _FILE_ROWS, count) - 1]
        end = int(np.searchsorted(rows.global_step, last, side="right"))
        yield rows.part(slice(begin, end))
        begin = end


def _table(worker: str, plans: Sequence[Plan], rows: Numbers) -> pa.Table:
    count = len(rows.value)
    collections = [plan.collections for plan in plans]
    constant = np.zeros(count, np.intp)
    columns: dict[str, pa.Array] = {
        "name": broadcast(texts([plan.name for plan in plans]), rows.name),
        "mode": broadcast(texts(_MODES), rows.mode),
        "mode_step": numbers(rows.mode_step, pa.int64()),
        "global_step": numbers(rows.global_step, pa.int64()),
        "worker": broadcast(texts([worker]), constant),
        "dtype": broadcast(texts([_DTYPE]), constant),
        "shape": broadcast(lists([()], numbers([], pa.int64())), constant),
        "nbytes": numbers(np.full(count, _NBYTES), pa.int64()),
        "saved_at": numbers(rows.saved_at // 1000, pa.timestamp("us", tz="UTC")),
        "collections": broadcast(lists(collections, texts([each for of in collections for each in of])), rows.name),
        "scalar": numbers(rows.value, pa.float64()),
    }
    arrays = [columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in INDEX_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=INDEX_SCHEMA)


def _summary(plans: Sequence[Plan], rows: Numbers, previous: str) -> IndexSummary:
    begins = np.flatnonzero(np.diff(rows.global_step, prepend=-1))
    name_sets, of_steps = _name_sets(plans, rows.name, begins)
    # Plain tuples, which are made in a tenth of the time: there may be a million.
    steps = zip(
        map(_MODES.__getitem__, rows.mode[begins].tolist()),
        rows.mode_step[begins].tolist(),
        rows.global_step[begins].tolist(),
        np.maximum.reduceat(rows.saved_at // 1000, begins).tolist(),
        of_steps.tolist(),
        strict=True,
    )
    return IndexSummary(len(rows.value), cast(list[StepSummary], list(steps)), name_sets, [], previous)


def _name_sets(
    plans: Sequence[Plan], name: Integers, begins: Integers
) -> tuple[list[tuple[NamedTensor, ...]], Integers]:
    """Return the distinct sets of names, and the number of each step's set. Most steps have the previous one's."""
    counts = np.diff(begins, append=len(name))
    before = np.append(0, counts[:-1])
    is_equal = name == name[np.arange(len(name)) - np.repeat(before, counts)]
    changes = ~np.logical_and.reduceat(is_equal, begins) | (counts != before)
    sets: dict[tuple[int, ...], int] = {}
    numbered = [
        sets.setdefault(tuple(name[begin : begin + count].tolist()), len(sets))
        for begin, count in zip(begins[changes].tolist(), counts[changes].tolist(), strict=True)
    ]
    tensors = [NamedTensor(plan.name, plan.collections) for plan in plans]
    return [tuple(map(tensors.__getitem__, names)) for names in sets], np.array(numbered)[np.cumsum(changes) - 1]
