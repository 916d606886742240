"""`python -m tensortrial` is the command line."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name."""
    if sys.argv[1:2] == ["run"]:
        # Outside of click, which has its own way with what a script raises.
        from .cli.writing.run import run

        sys.exit(run(sys.argv[2:]))
    from .cli.interrupts import hold_while_importing

    hold_while_importing()
    try:
        from .cli import main as commands

        commands()
    except KeyboardInterrupt:
        # It came between the parts of a command, each of which answers it in the same way.
        sys.stderr.write("Interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
