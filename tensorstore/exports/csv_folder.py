"""Export into a folder of CSV files: `csv:exports`, `csv:s3://bucket/exports`."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.csv

from .batches import ahead
from .folder import Folder
from .json_text import as_json, is_nested


class CSVFolder(Folder):
    """CSV files in UTF-8 with a header. An empty text is `""`, and what is missing is nothing at all; times are UTC,
    lists and histograms JSON, raw values hexadecimal."""

    suffix = ".csv"

    def _write(self, file: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> int:
        count = 0
        texts = pa.schema([(field.name, _type(field.type)) for field in schema])
        with pyarrow.csv.CSVWriter(file, texts) as writer:
            for rows in ahead(_written(batch, texts) for batch in batches):
                writer.write_batch(rows)
                count += rows.num_rows
        return count

    def _columns(self, schema: pa.Schema) -> dict[str, str]:
        return dict.fromkeys(schema.names, "a column")

    def _read_columns(self, path: str) -> dict[str, str]:
        header = self._storage.read(path).partition(b"\n")[0].decode(errors="replace")
        return dict.fromkeys(next(csv.reader(io.StringIO(header)), []), "a column")


def _type(kind: pa.DataType) -> pa.DataType:
    is_text = is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_timestamp(kind)
    return pa.string() if is_text else kind


def _written(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([_cells(column) for column in batch.columns], schema=schema)


def _cells(column: pa.Array) -> pa.Array:
    if is_nested(column.type):
        return as_json(column)
    if pa.types.is_timestamp(column.type):
        # Arrow takes a microsecond for each that is in UTC, and all tensors of a step have the same.
        times = column.dictionary_encode()
        return times.dictionary.cast(pa.string()).take(times.indices)
    if pa.types.is_binary(column.type):
        return pa.array([value and value.hex() for value in column.to_pylist()], pa.string())
    return column
