"""The rows that answer a query, as a table to look at or in a format that programs read."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import click

from ..errors import StorageError
from ..format.arrow_arrays import bounded
from .console import console_for, print_table

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""What spreadsheets take for the beginning of a formula."""

format_option = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet", "arrow"]),
    default="table",
    show_default=True,
    help="How to give the rows; json is one object a line, arrow an IPC stream.",
)
output_option = click.option(
    "--output", type=click.Path(dir_okay=False), help="Write to this file. [default: to standard output]"
)

guard_option = click.option(
    "--guard-formulas", is_flag=True, help="In CSV, put ' before texts that a spreadsheet would take for a formula."
)


def write_rows(relation: Any, form: str, output: str | None, guard: bool = False) -> None:
    """Write the rows of an answer to the file `output`, or to standard output.

    All of them are there before the first is written, so a query that fails leaves the file as it was. Raises
    QueryError, StorageError. `guard` puts ' before texts in CSV that begin as formulas do.
    """
    rows = relation.to_arrow_table() if form in ("parquet", "arrow") else relation.fetchall()
    if form == "table" and output is None:
        _print(relation.columns, rows)
        return
    data = _arrow(rows, form) if form in ("parquet", "arrow") else _text(relation.columns, rows, form, guard).encode()
    if output is None:
        sys.stdout.buffer.write(data)
        return
    try:
        Path(output).write_bytes(data)
    except OSError as exc:
        raise StorageError(output, f"the rows cannot be written: {exc.strerror}") from exc


def _print(columns: Sequence[str], rows: Sequence[Sequence[Any]], file: io.StringIO | None = None) -> None:
    print_table(console_for(file), columns, [[_cell(value) for value in row] for row in rows])
    if not rows:
        click.echo(" (no rows)", file=file)


def _text(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str, guard: bool) -> str:
    file = io.StringIO()
    if form == "csv":
        writer = csv.writer(file, lineterminator="\n")
        cell = _guarded_cell if guard else _csv_cell
        writer.writerow(map(cell, columns))
        writer.writerows([cell(value) for value in row] for row in rows)
    elif form == "json":
        for row in rows:
            file.write(json.dumps(dict(zip(columns, map(_plain, row), strict=True)), ensure_ascii=False) + "\n")
    else:
        _print(columns, rows, file)
    return file.getvalue()


def _arrow(table: Any, form: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    if form == "parquet":
        pq.write_table(table, buffer, write_statistics=bounded(table.schema) or False)
    else:
        with pa.ipc.new_stream(buffer, table.schema) as stream:
            stream.write_table(table)
    return bytes(buffer.getvalue())


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes"
    return _csv_cell(value)


def _csv_cell(value: Any) -> str:
    """As an export into CSV has it."""
    if isinstance(value, bool | list | dict):
        return json.dumps(_plain(value), ensure_ascii=False)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return "" if value is None else str(value)


def _guarded_cell(value: Any) -> str:
    text = _csv_cell(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA_SIGNS) else text


def _plain(value: Any) -> Any:
    """The value as JSON has it: NaN and infinities, which it has not, and all that is no number become texts."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, Decimal):
        return float(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
