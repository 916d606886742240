"""Text at a shell, as the library rich lays it out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

_GAP = 3
_FOLDED_WIDTH = 24
"""A column is not folded to less than this."""


def console_for(file: TextIO | None = None) -> Console:
    # Into a pipe or a file, lines must not be cut at the width of a terminal that is not there.
    width = None if (file or sys.stdout).isatty() else 10_000
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def print_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; where the terminal is too narrow for its columns, each row as lines, one for a column."""
    if rows and _width(columns, rows) > console.width:
        _print_records(console, columns, rows)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """The least width at which all can be read, long texts folded."""
    widths = [
        max(min(max(cell_len(row[place]) for row in rows), _FOLDED_WIDTH), cell_len(column))
        for place, column in enumerate(columns)
    ]
    return sum(widths) + _GAP * len(widths)


def _print_records(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for number, row in enumerate(rows):
        record = Table.grid(padding=(0, 2))
        record.add_column(style="bold")
        record.add_column(overflow="fold")
        for column, cell in zip(columns, row, strict=True):
            record.add_row(column, cell)
        console.rule(f"row {number + 1}", style="none", align="left")
        console.print(record)
