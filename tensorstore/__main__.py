"""`python -m tensortrial` is the command line."""

from __future__ import annotations

import gc
import io
import os
import sys
from contextlib import suppress


def main() -> None:
    """Run the command in the arguments."""
    if sys.argv[1:2] == ["run"]:
        # `run` is handled without click, which changes the errors of scripts.
        from .cli.writing.run import run

        sys.exit(run(sys.argv[2:]))
    # Objects of imports stay alive. Without this, Python searches them for garbage a hundred times.
    gc.set_threshold(100_000)
    from .cli.interrupts import hold_while_importing, say_no_more

    hold_while_importing()
    _open_closed_streams()
    _escape_what_cannot_be_encoded()
    try:
        from .cli import main as commands

        commands()
    except KeyboardInterrupt:
        # Ctrl-C came between the parts of a command, which handle it in the same way.
        sys.stderr.write("Interrupted\n")
        sys.exit(130)
    finally:
        say_no_more()


def _open_closed_streams() -> None:
    """Replace a standard stream that was closed before the start (`<&-`, `>&-`), for which Python has None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _escape_what_cannot_be_encoded() -> None:
    """Let standard output write every name: in UTF-8 a path's original bytes, in another encoding escapes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        is_utf8 = sys.stdout.encoding.lower() in ("utf-8", "utf8")
        with suppress(OSError):  # standard output was replaced by another kind of file
            sys.stdout.reconfigure(errors="surrogateescape" if is_utf8 else "backslashreplace")


if __name__ == "__main__":
    main()
