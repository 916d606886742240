"""Tables of HTML for notebooks, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_MOST_ROWS = 50
_LONGEST = 200


def html_table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """Return a table of two columns under a title.

    Names come from a run, which may be a stranger's: each is text, never markup.

    Args:
        title: The first line.
        rows: What a value is, and the value.

    Returns:
        HTML without scripts and styles of its own. Long values are cut, and rows after the first 50 are counted.
    """
    found = list(rows)
    lines = [f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in found[:_MOST_ROWS]]
    if len(found) > _MOST_ROWS:
        lines.append(f"<tr><td colspan=2>and {len(found) - _MOST_ROWS:,} more</td></tr>")
    return f"<div><b>{_text(title)}</b><table>{''.join(lines)}</table></div>"


def _text(value: object) -> str:
    text = str(value)
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
