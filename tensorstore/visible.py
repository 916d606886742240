"""The escaping of a run's text for terminals and sentences."""

from __future__ import annotations

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
