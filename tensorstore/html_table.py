"""HTML tables for notebooks, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

from .errors import TensorTrialError
from .visible import visible

_MOST_ROWS = 50
_LONGEST = 200
_Value = TypeVar("_Value")


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a table of two columns, labels and values, under a title, as HTML without scripts and styles.

    Names may come from an untrusted run, so every text is escaped. Long values are cut, and rows after the first 50 are
    counted.
    """
    found = list(rows)
    lines = [f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in found[:_MOST_ROWS]]
    if len(found) > _MOST_ROWS:
        lines.append(f"<tr><td colspan=2>and {len(found) - _MOST_ROWS:,} more</td></tr>")
    return f"<div><b>{_text(title)}</b><table>{''.join(lines)}</table></div>"


def html_facts(title: str, facts: Iterable[tuple[str, object]]) -> str | None:
    """Return a table of facts. If the run is damaged or closed, return None, so that a notebook shows the text."""
    try:
        return html_table(title, facts)
    except TensorTrialError:
        return None


def html_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table of the first 50 rows below the names of their columns, as HTML without scripts and styles.

    Every text is escaped, and long values are cut.
    """
    found = list(islice(rows, _MOST_ROWS + 1))
    lines = [f"<tr>{''.join(f'<th>{_text(name)}</th>' for name in columns)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{_text(value)}</td>' for value in row)}</tr>" for row in found[:_MOST_ROWS]]
    if len(found) > _MOST_ROWS:
        lines.append(f"<tr><td colspan={len(columns)}>and more</td></tr>")
    return f"<div><table>{''.join(lines)}</table></div>"


def html_list(title: str, lines: Iterable[str]) -> str:
    """Return a list under a title, in which every text is escaped and none is cut."""
    items = "".join(f"<li>{_escaped(visible(line))}</li>" for line in lines)
    return f"<div>{_escaped(visible(title))}<ul>{items}</ul></div>"


class TableOfValues(dict[str, _Value]):
    """A dictionary that a notebook shows as a table."""

    title = "Values"

    def _repr_html_(self) -> str:
        return html_table(self.title, ((name, self._shown(value)) for name, value in self.items()))

    def _shown(self, value: _Value) -> object:
        return value


def _text(value: object) -> str:
    text = visible(str(value))
    return _escaped(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def _escaped(text: str) -> str:
    from html import escape  # its tables take milliseconds to load, and most processes show no HTML

    return escape(text)
