"""The command line: `tensortrial COMMAND RUN …`, with one file for each command."""

import sys

from ..errors import MissingExtra

try:
    from .commands import main
except ModuleNotFoundError as exc:
    if exc.name not in ("click", "rich"):
        raise
    # A sentence instead of a traceback, because the reader is at a shell.
    sys.exit(str(MissingExtra(exc.name, "ui", "the command line")))
except KeyboardInterrupt:
    sys.exit(130)

__all__ = ["main"]
