"""The tables of an export: the views of many runs, with the same names and columns, as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..format.arrow_arrays import numbers, table, texts
from ..format.schema import FINDINGS_SCHEMA, INDEX_SCHEMA, TENSORS_SCHEMA
from ..read.run_queries import COLLECTIONS
from ..statistics.definitions import STATISTICS

_TEXT, _NUMBER = pa.string(), pa.int64()
_TIME = pa.timestamp("us", tz="UTC")
_RUN = pa.field("run", _TEXT, nullable=False)
_KEY = [INDEX_SCHEMA.field(name) for name in ("name", "mode", "mode_step", "global_step", "worker")]


def _schema(*fields: pa.Field) -> pa.Schema:
    return pa.schema([_RUN, *fields])


def _scalars(index: pa.Table) -> pa.Table:
    kept = index.filter(pc.is_valid(index["scalar"]))
    return kept.select([*(field.name for field in _KEY), "saved_at", "scalar", "collections"])


def _reductions(index: pa.Table) -> pa.Table:
    keys = [field.name for field in _KEY]
    found = []
    for statistic in STATISTICS:
        kept = index.filter(pc.is_valid(index[statistic]))
        if len(kept):
            names = texts([statistic]).take(numbers(np.zeros(len(kept)), pa.int64()))
            found.append(
                pa.Table.from_arrays([*kept.select(keys), names, kept[statistic]], [*keys, "reduction", "value"])
            )
    return pa.concat_tables(found) if found else table(GROWING["reductions"].remove(0), [])


GROWING = {
    "tensors": _schema(*INDEX_SCHEMA),
    "steps": _schema(*_KEY[1:], pa.field("saved_at", _TIME), pa.field("num_tensors", _NUMBER)),
    "scalars": _schema(
        *_KEY, pa.field("saved_at", _TIME), pa.field("value", pa.float64()), INDEX_SCHEMA.field("collections")
    ),
    "reductions": _schema(*_KEY, pa.field("reduction", _TEXT), pa.field("value", pa.float64())),
    "tensor_values": _schema(*TENSORS_SCHEMA),
}
"""Growing tables, to which a run adds rows."""

REPLACED = {
    "runs": _schema(
        pa.field("path", _TEXT),
        pa.field("started_at", _TIME),
        pa.field("ended_at", _TIME),
        pa.field("framework", _TEXT),
        pa.field("versions", _TEXT),
        pa.field("workers", pa.int32()),
        pa.field("steps", _NUMBER),
        pa.field("tensor_bytes", _NUMBER),
        pa.field("file_bytes", _NUMBER),
        pa.field("metadata", _TEXT),
    ),
    "collections": _schema(*COLLECTIONS.remove(0)),
    "findings": _schema(*FINDINGS_SCHEMA),
    "run_summary": _schema(
        pa.field("name", _TEXT),
        pa.field("mode", _TEXT),
        pa.field("last", pa.float64()),
        pa.field("last_step", _NUMBER),
        pa.field("min", pa.float64()),
        pa.field("max", pa.float64()),
        pa.field("steps", _NUMBER),
    ),
}
"""Small tables. If rows of a run have changed, all of its rows are replaced."""

OF_STEPS = frozenset({"run_summary"})
"""Small tables that change only with the steps of a run. They are not read for a run with unchanged steps."""

DOCUMENTS = frozenset({"versions", "metadata", "save_config", "reduction_config"})
"""Columns of small tables whose texts are JSON."""

SCHEMAS = {**GROWING, **REPLACED}
"""Every table with its columns, the same in all targets."""

DEFAULT = ("runs", "run_summary", "collections", "steps", "tensors", "scalars", "reductions")
"""The tables that are exported by default: all but raw values and findings of rules."""


OF_INDEX: dict[str, Callable[[pa.Table], pa.Table]] = {
    "tensors": lambda index: index,
    "scalars": _scalars,
    "reductions": _reductions,
}
"""The functions that turn rows of the index into rows of a table, without its column `run`."""


def with_run(run: str, rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield rows of a run as batches of `schema`, whose first column is the run. Texts may be dictionaries in both."""
    of_run = pa.DictionaryArray.from_arrays(numbers(np.zeros(len(rows)), pa.int32()), texts([run]))
    columns = zip([pa.chunked_array([of_run]), *rows.columns], schema, strict=True)
    # A cast takes time even if the types are equal.
    arrays = [column if column.type == field.type else column.cast(field.type) for column, field in columns]
    for batch in pa.Table.from_arrays(arrays, schema=schema).to_batches():
        if batch.num_rows:
            yield batch


def columns_of(schema: pa.Schema) -> dict[str, str]:
    """Return the types of columns in words, the same for every name of a list's items and every layout of texts."""
    words = {field.name: str(field.type).replace("large_", "").replace("_view", "") for field in schema}
    return {name: kind.replace("element:", "item:") for name, kind in words.items()}
