"""`python -m tensortrial.smdebug script.py …` runs a script that imports smdebug, unchanged."""

from __future__ import annotations

import os
import sys

from ..errors import ConfigurationError
from ..script import prepared_module, prepared_script
from . import SHADOW_VARIABLE

_USAGE = """\
usage: python -m tensortrial.smdebug [-m] SCRIPT [ARGUMENT ...]

Run a script (with -m, a module) in which `import smdebug` imports tensortrial, also in the processes that it starts.
With a launcher: torchrun -m tensortrial.smdebug SCRIPT, or python -m tensortrial.smdebug -m torch.distributed.run …
"""


def main(arguments: list[str]) -> int:
    """Run a script or a module with aliases for smdebug. Return the exit status."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    is_module = arguments[0] == "-m"
    if is_module and len(arguments) < 2:
        print(_USAGE, end="", file=sys.stderr)
        return 2
    try:
        run = prepared_module(arguments[1:]) if is_module else prepared_script(arguments)
    except ConfigurationError as exc:
        print(f"python -m tensortrial.smdebug: {exc}", file=sys.stderr)
        return 2
    run()
    return 0


if __name__ == "__main__":
    from . import install, install_for_children

    # Importing the package did not shadow an installed smdebug; running a script this way does.
    os.environ[SHADOW_VARIABLE] = "1"
    install(shadow=True)
    install_for_children()
    sys.exit(main(sys.argv[1:]))
