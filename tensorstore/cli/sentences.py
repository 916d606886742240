"""The text of an error on a terminal."""

from __future__ import annotations

from ..errors import ExportError, QueryError, TensorTrialError
from ..visible import visible


def sentence_of(exc: Exception) -> str:
    """Return the text of an error.

    It has several lines only if a database wrote it, and not because of a line break in a path.
    """
    if isinstance(exc, OSError) and not isinstance(exc, TensorTrialError) and exc.strerror:
        return visible(f"{exc.filename or 'the output cannot be written'}: {exc.strerror}", keep="")
    return visible(str(exc), keep="\t\n" if isinstance(exc, QueryError | ExportError) else "")
