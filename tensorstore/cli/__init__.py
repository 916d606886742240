"""The command line: `tensortrial COMMAND RUN …`, with one file for each command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..errors import MissingExtra

if TYPE_CHECKING:
    from .commands import main

__all__ = ["main"]


def __getattr__(name: str) -> Any:
    # `run` needs neither click nor rich, and is imported without them.
    if name != "main":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from .commands import main
    except ModuleNotFoundError as exc:
        if exc.name not in ("click", "rich"):
            raise
        # A sentence instead of a traceback, because the reader is at a shell.
        sys.exit(str(MissingExtra(exc.name, "ui", "the command line")))
    return main
