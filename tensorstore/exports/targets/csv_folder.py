"""The export into a folder of CSV files: `csv:exports`, `csv:s3://bucket/exports`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ...config.reduction_config import boolean
from ...storage.open import ByteRange
from ..batches import ahead
from ..json_text import as_json, is_nested
from .folder import Folder

_HEADER_BYTES = 64 << 10


class CSVFolder(Folder):
    """CSV files in UTF-8 with a header.

    An empty text is `""`, and null is an empty cell. Times are UTC, lists and histograms JSON, raw values hexadecimal.
    Spreadsheets read a text that begins with =, +, - or @ as a formula: `guard_formulas` puts ' before such texts.
    """

    suffix = ".csv"

    def __init__(self, url: str, guard_formulas: bool | str = False, **storage_options: Any) -> None:
        super().__init__(url, **storage_options)
        self._guard = boolean("guard_formulas", guard_formulas)

    def _write(self, file: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        texts = pa.schema([(field.name, _type(field.type)) for field in schema])
        with pyarrow.csv.CSVWriter(file, texts) as writer:
            for rows in ahead(_written(batch, texts, self._guard) for batch in batches):
                writer.write_batch(rows)

    def _columns(self, schema: pa.Schema) -> dict[str, str]:
        return dict.fromkeys(schema.names, "a column")

    def _read_columns(self, path: str) -> dict[str, str]:
        (front,) = self._storage.read_ranges([ByteRange(path, 0, _HEADER_BYTES)])
        header = front.partition(b"\n")[0].decode(errors="replace")
        return dict.fromkeys(next(csv.reader(io.StringIO(header)), []), "a column")


def _type(kind: pa.DataType) -> pa.DataType:
    is_text = is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_timestamp(kind)
    return pa.string() if is_text else kind


def _written(batch: pa.RecordBatch, schema: pa.Schema, guard: bool) -> pa.RecordBatch:
    columns = [_guarded(column) if guard and column.type == pa.string() else column for column in batch.columns]
    return pa.RecordBatch.from_arrays([_cells(column) for column in columns], schema=schema)


def _guarded(texts: pa.Array) -> pa.Array:
    """Return the texts with ' before those that a spreadsheet would read as formulas."""
    return pc.replace_substring_regex(texts, r"\A([=+\-@\t\r])", r"'\1")


def _cells(column: pa.Array) -> pa.Array:
    if is_nested(column.type):
        return as_json(column)
    if pa.types.is_timestamp(column.type):
        # Arrow takes a microsecond to format a time in UTC, and all tensors of a step have the same one.
        times = column.dictionary_encode()
        return times.dictionary.cast(pa.string()).take(times.indices)
    if pa.types.is_binary(column.type):
        return pa.array([value and value.hex() for value in column.to_pylist()], pa.string())
    return column
