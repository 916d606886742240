"""The command line: `tensortrial COMMAND RUN …`, one file a command."""

import sys

from ..errors import MissingExtra

try:
    from .commands import main
except ModuleNotFoundError as exc:
    if exc.name not in ("click", "rich"):
        raise
    # Said here and not by a traceback: the reader of this is at a shell.
    sys.exit(str(MissingExtra(exc.name, "ui", "the command line")))
except KeyboardInterrupt:
    sys.exit(130)

__all__ = ["main"]
