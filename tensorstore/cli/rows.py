"""The rows that answer a query, as a table to look at or in a format that programs read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import click

from .console import console_for, print_table

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


def write_rows(relation: Any, form: str, output: str | None) -> None:
    """Write the rows of a relation of DuckDB to the file `output`, or to standard output."""
    with click.open_file(output or "-", "wb") as file:
        if form in ("parquet", "arrow"):
            _write_arrow(relation.to_arrow_table(), form, file)
        else:
            text = io.TextIOWrapper(file, encoding="utf-8", newline="")
            _write_text(relation.columns, relation.fetchall(), form, text)
            # Standard output is not ours to close.
            text.detach()


def _write_text(columns: Sequence[str], rows: Iterable[Sequence[Any]], form: str, file: TextIO) -> None:
    if form == "csv":
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    elif form == "json":
        for row in rows:
            file.write(json.dumps(dict(zip(columns, row, strict=True)), default=str) + "\n")
    else:
        print_table(console_for(file), columns, [[_cell(value) for value in row] for row in rows])


def _write_arrow(table: Any, form: str, file: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if form == "parquet":
        buffer = pa.BufferOutputStream()  # a pipe cannot tell where in the file it is
        pq.write_table(table, buffer)
        file.write(buffer.getvalue())
    else:
        with pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    return "" if value is None else str(value)
