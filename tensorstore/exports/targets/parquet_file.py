"""The writer of an export's Parquet files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...format.arrow_arrays import bounded
from ..batches import ROWS, ahead, gathered

_LIST_ITEMS = ".list.element"
"""The suffix of the path of a list column's items."""

_ALL_DIFFERENT = frozenset({"offset"})
"""Integer columns without repeated values."""
_PIECE = 16 << 10
"""The number of values that are encoded at once. Arrow's default of 1024 takes a tenth longer."""


def write_parquet(file: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pq.FileMetaData:
    """Write batches of `schema`, in which texts may be dictionaries, as one file, and return its footer's metadata.

    Columns of texts and integers have dictionaries, and the file is compressed with zstd. It has no Arrow schema, so
    that every reader sees dictionaries of texts as texts.
    """
    with pq.ParquetWriter(file, schema, **write_options(schema)) as writer:
        for rows in ahead(map(pa.Table.unify_dictionaries, gathered(batches, schema))):
            writer.write_table(rows, ROWS)
    return writer.writer.metadata


def write_options(schema: pa.Schema) -> dict[str, Any]:
    """Return the options with which pyarrow writes rows of a schema."""
    columns = [name for field in schema if (name := _dictionary_column(field))]
    return {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": columns or False,
        "write_statistics": bounded(schema) or False,
        "write_batch_size": _PIECE,
        "store_schema": False,
    }


def _dictionary_column(field: pa.Field) -> str:
    """Return the path of the column if it should have a dictionary; '' if its values seldom repeat."""
    if pa.types.is_list(field.type):
        return field.name + _LIST_ITEMS if _repeats(field.type.value_type) else ""
    return field.name if _repeats(field.type) and field.name not in _ALL_DIFFERENT else ""


def _repeats(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_integer(kind))
