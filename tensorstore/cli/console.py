"""Text and tables on a terminal, formatted by the library rich."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import click
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..progress import DELAY_SECONDS
from ..visible import visible

COLUMN_GAP = 3
"""The characters between two columns."""
_FOLDED_WIDTH = 24
"""The least width of a folded column."""


def print_line(text: str, err: bool = False) -> None:
    """Print one line for people: line breaks, such as that of a path, are escaped."""
    click.echo(visible(text, keep="\t"), err=err)


def print_name(name: str) -> None:
    """Print a name on a separate line: escaped on a terminal, unchanged into a pipe or a file."""
    # `color` keeps click from removing what looks like an ANSI sequence.
    click.echo(visible(name, keep="") if sys.stdout.isatty() else name, color=True)


def console_for(file: TextIO | None = None) -> Console:
    """Return a console that prints to a file, or to standard output."""
    # A pipe or a file has no width, and lines must not be cut.
    width = None if (file or sys.stdout).isatty() else 10_000
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def _escaped(cell: str) -> str:
    """Return the text of a cell, whose line breaks would look like further rows."""
    return visible(cell, keep="")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show a spinner on a terminal if a command takes longer than two seconds."""
    if not sys.stderr.isatty():
        yield
        return
    status = Console(stderr=True).status(visible(f"{what} …", keep=""))
    timer = threading.Timer(DELAY_SECONDS, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        status.stop()


def print_table(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. If the terminal is too narrow, columns with a single value are printed as a line above it.

    If that is not enough, each row is printed with one line for each column.
    """
    columns, rows = [_escaped(column) for column in columns], [[_escaped(cell) for cell in row] for row in rows]
    if len(rows) > 1 and least_width(columns, rows) > console.width:
        columns, rows = _without_constants(console, columns, rows)
    if rows and least_width(columns, rows) > console.width:
        _print_records(console, columns, rows)
        return
    if rows and least_width(columns, rows, fold=False) <= console.width and not console.options.ascii_only:
        _print_unfolded(console, columns, rows)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _print_unfolded(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that fits as rich prints it, which takes a second for 400 rows of 50 columns."""
    widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
        return f" {(' ' * COLUMN_GAP).join(padded)} "

    empty, rule = line([""] * len(widths)), "─" * (sum(widths) + COLUMN_GAP * (len(widths) - 1))
    console.out(empty, highlight=False)
    console.out(line(columns), style="bold", highlight=False)
    console.out("\n".join([f" {rule} ", *map(line, rows), empty]), highlight=False)


def _without_constants(
    console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Print the columns that have the same value in all rows as a line. Return the others."""
    varying = [index for index in range(len(columns)) if len({row[index] for row in rows}) > 1]
    same = [(columns[index], rows[0][index]) for index in range(len(columns)) if index not in varying]
    if not same or not varying:
        return list(columns), [list(row) for row in rows]
    full = ", ".join(f"{name} {cell}" for name, cell in same if cell)
    empty = ", ".join(name for name, cell in same if not cell)
    console.print(f"in all rows: {'; '.join(filter(None, (full, empty and f'empty: {empty}')))}")
    return [columns[index] for index in varying], [[row[index] for index in varying] for row in rows]


def least_width(columns: Sequence[str], rows: Sequence[Sequence[str]], fold: bool = True) -> int:
    """Return the smallest width of a table that shows all columns, with long texts folded if `fold`."""
    most = _FOLDED_WIDTH if fold else sys.maxsize
    widths = [
        max(min(max(cell_len(_escaped(row[index])) for row in rows), most), cell_len(_escaped(column)))
        for index, column in enumerate(columns)
    ]
    return sum(widths) + COLUMN_GAP * len(widths)


def print_facts(console: Console, facts: Sequence[tuple[str, str]], style: str = "") -> None:
    """Print names with their values, of which long ones are folded between words, or in a word that is too long."""
    indent = max(cell_len(name) for name, _ in facts) + 2
    for name, value in facts:
        for number, line in enumerate(Text(value).wrap(console, max(console.width - indent, 1), overflow="fold")):
            label = "" if number else name
            console.print(Text.assemble((label, style), " " * (indent - cell_len(label)), line), soft_wrap=True)


def _print_records(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    for number, row in enumerate(rows):
        console.rule(f"row {number + 1}", style="none", align="left")
        print_facts(console, list(zip(columns, row, strict=True)), style="bold")
