"""A run's text in terminals and sentences: its escaping, counts, sizes, and lists of names."""

from __future__ import annotations

from collections.abc import Sequence
from unicodedata import category

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of Unicode: controls, formats, surrogates, and line and paragraph separators."""
_LONGEST = 300


def visible(text: str, keep: str = "\t\n") -> str:
    r"""Return text with all characters that control a terminal, or are invisible, as escapes such as `\x1b`.

    The names of tensors, workers and collections may come from an untrusted run. ESC and the C1 controls move the
    cursor or set the title, CR overwrites the line, and marks of direction reorder the text.

    Args:
        text: Any text.
        keep: Characters that are not escaped.
    """
    if text.isprintable():
        return text
    hidden = {sign for sign in text if category(sign) in _HIDDEN and sign not in keep}
    return "".join(sign.encode("unicode_escape").decode() if sign in hidden else sign for sign in text)


def in_a_line(text: str) -> str:
    """Return text as a part of one line: with all line breaks escaped, and without the middle if it is very long.

    Args:
        text: Any text, such as the name of a tensor.
    """
    half = _LONGEST // 2
    return visible(text if len(text) <= _LONGEST else f"{text[:half]}…{text[-half:]}", keep="")


def counted(number: int, noun: str) -> str:
    """Return a number with a noun in the singular or plural."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def sized(nbytes: int) -> str:
    """Return a number of bytes with a unit, such as 1.5 MB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:,.1f} {unit}"
    return counted(nbytes, "byte")


def listed(texts: Sequence[str], between: str = ", ", most: int = 5) -> str:
    """Return the first texts, each as a part of one line, and how many more there are."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(map(in_a_line, texts[:most])) + more


def quoted(names: Sequence[str]) -> str:
    """Return the first few names in quotes, and an ellipsis if there are more."""
    return ", ".join(map(repr, names[:3])) + (", …" if len(names) > 3 else "")
