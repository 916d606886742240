"""The output of a query: a table for people, or a format that programs read."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from ..errors import ConfigurationError
from ..format.arrow_arrays import bounded
from ..format.run_files import check_outside_runs
from ..nested import plain
from ..storage.output_file import write_output
from .console import console_for, print_table, working

FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r")
"""The characters that begin a formula in a spreadsheet."""

STDOUT = "/dev/stdout"
_FORMS = ("table", "csv", "json", "parquet", "arrow")
_BINARY = ("parquet", "arrow")

_SPECIAL = re.compile('[,"\r\n]')


class OutputFile(click.Path):
    """A file to write; `-` is standard output."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("a file needs a name, got ''; leave the option out for its default", param, ctx)
        folder = os.path.dirname(os.path.abspath(value))
        if not os.path.isdir(folder):
            self.fail(f"there is no folder {folder!r} to write into", param, ctx)
        return super().convert(STDOUT if value == "-" else value, param, ctx)


_OPTIONS = (
    click.option(
        "--format",
        "form",
        type=click.Choice(_FORMS),
        help="The format of the rows; json is one object per line, arrow an IPC stream. [default: the suffix of "
        "--output if it is one of these, else table]",
    ),
    click.option("-o", "--output", type=OutputFile(), help="Write to this file. [default: standard output]"),
    click.option(
        "--guard-formulas",
        is_flag=True,
        help="In CSV, put ' before texts that a spreadsheet would interpret as a formula.",
    ),
)


@dataclass(frozen=True)
class RowOutput:
    """The destination and the form of the rows that a command writes."""

    form: str
    path: str | None
    guard_formulas: bool

    @property
    def is_default(self) -> bool:
        """True if the rows are printed as a table, because no option says otherwise."""
        return self.form == "table" and self.path is None

    def write(self, relation: Any) -> None:
        """Write the rows of a query.

        All rows are fetched before the first is written, so a query that fails does not change the file.

        Raises:
            QueryError: The query failed.
            ConfigurationError: The format cannot hold a type of the rows.
            StorageError: The file cannot be written.
        """
        with working("querying"):
            rows = relation.to_arrow_table() if self._is_binary else relation.fetchall()
        self._write(relation.columns, rows)

    def write_table(self, table: Any) -> None:
        """Write an Arrow table. Raises as `write`."""
        rows = table if self._is_binary else list(zip(*table.to_pydict().values(), strict=True))
        self._write(table.column_names, rows)

    @property
    def _is_binary(self) -> bool:
        return self.form in _BINARY

    def _write(self, columns: Sequence[str], rows: Any) -> None:
        if self.is_default:
            _print(columns, rows)
        elif self._is_binary:
            self._write_bytes(_arrow(rows, self.form))
        else:
            self._write_bytes(_text(columns, rows, self.form, self.guard_formulas).encode())

    def _write_bytes(self, data: bytes) -> None:
        if self.path is None:
            sys.stdout.buffer.write(data)
        else:
            check_outside_runs(self.path)
            write_output(self.path, data)


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --format, --output and --guard-formulas to a command, which receives them as the RowOutput `rows`."""

    @functools.wraps(command)
    def with_output(form: str | None, output: str | None, guard_formulas: bool, **arguments: Any) -> None:
        path = None if output == STDOUT else output
        form = form or next((each for each in _FORMS if (path or "").endswith(f".{each}")), "table")
        if form in _BINARY and path is None and sys.stdout.isatty():
            raise click.UsageError(f"{form} is no text for a terminal; pass --output FILE")
        command(rows=RowOutput(form, path, guard_formulas), **arguments)

    for option in reversed(_OPTIONS):
        with_output = option(with_output)
    return with_output


def _print(columns: Sequence[str], rows: Sequence[Sequence[Any]], file: io.StringIO | None = None) -> None:
    print_table(console_for(file), columns, [[_cell(value) for value in row] for row in rows])
    if not rows:
        click.echo(" (no rows)", file=file)


def _text(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str, guard: bool) -> str:
    file = io.StringIO()
    if form == "csv":
        text = _guarded_cell if guard else _csv_cell
        for row in itertools.chain([columns], rows):
            file.write(",".join(["" if value is None else _quoted(text(value)) for value in row]) + "\n")
    elif form == "json":
        keys = _distinct(columns)
        for row in rows:
            file.write(json.dumps(dict(zip(keys, map(plain, row), strict=True)), ensure_ascii=False) + "\n")
    else:
        _print(columns, rows, file)
    return file.getvalue()


def _distinct(columns: Sequence[str]) -> list[str]:
    """Return the names, with a number appended to repeated ones, because the keys of an object differ."""
    names: dict[str, None] = {}
    for column in columns:
        candidates = itertools.chain([column], (f"{column}_{number}" for number in itertools.count(1)))
        names[next(name for name in candidates if name not in names)] = None
    return list(names)


def _arrow(table: Any, form: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    if form == "parquet":
        try:
            pq.write_table(table, buffer, write_statistics=bounded(table.schema) or False)
        except pa.ArrowNotImplementedError as exc:  # such as an INTERVAL
            raise ConfigurationError(f"Parquet cannot hold these rows: {exc}; cast the column to VARCHAR") from exc
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
    """Return a value as text, in the form of an export into CSV."""
    if isinstance(value, bool | list | dict):
        return json.dumps(plain(value), ensure_ascii=False)
    if isinstance(value, bytes | bytearray):
        return value.hex()
    return "" if value is None else str(value)


def _quoted(text: str) -> str:
    """Return the text of a cell in CSV. Python's writer spells an empty text as null."""
    return '"' + text.replace('"', '""') + '"' if not text or _SPECIAL.search(text) else text


def _guarded_cell(value: Any) -> str:
    text = _csv_cell(value)
    return f"'{text}" if isinstance(value, str) and text.startswith(FORMULA_SIGNS) else text
