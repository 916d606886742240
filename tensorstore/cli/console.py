"""Text at a shell, as the library rich lays it out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table


def console_for(file: TextIO | None = None) -> Console:
    # Into a pipe or a file, lines must not be cut at the width of a terminal that is not there.
    width = None if (file or sys.stdout).isatty() else 10_000
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)


def print_table(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(*columns, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    console.print(table)
