"""The names of smdebug, for scripts that were written for it.

    import tensortrial.smdebug            # from here on `import smdebug.pytorch as smd` imports this project
    python -m tensortrial.smdebug train.py      # or run a script unchanged, with the processes that it starts
    %load_ext tensortrial.smdebug         # or in a notebook

`import smdebug` imports an installed smdebug, unless `install(shadow=True)`, TENSORTRIAL_SHADOW_SMDEBUG=1 or running a
script in this way shadows it.
"""

from __future__ import annotations

import importlib.machinery
import sys
import warnings
from pathlib import Path
from typing import Any

from ..script import add_to_python_path
from ..truth import is_switched_on
from .finder import Finder
from .names import MODULES

SHADOW_VARIABLE = "TENSORTRIAL_SHADOW_SMDEBUG"

_PATH = str(Path(__file__).resolve().parent / "path")
"""The folder of a package `smdebug` that installs the aliases, for the module search path of child processes."""


def install(shadow: bool = False) -> bool:
    """Make `smdebug` and its public submodules importable as aliases of this project.

    Args:
        shadow: Shadow an installed smdebug. By default it is not shadowed, and a warning is logged.

    Returns:
        Whether `smdebug` is now an alias of this project.
    """
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return True
    if _is_installed():
        if not shadow:
            warnings.warn(
                "`import smdebug` imports the installed smdebug; to import tensortrial under this name, set "
                f"{SHADOW_VARIABLE}=1 or uninstall smdebug",
                stacklevel=2,
            )
            return False
        print("tensortrial: the installed smdebug is shadowed; `import smdebug` imports tensortrial", file=sys.stderr)
    for name in [name for name in sys.modules if name.partition(".")[0] == "smdebug"]:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder())
    if _PATH not in sys.path:
        # Processes that multiprocessing spawns get this list before they import the main module.
        sys.path.insert(0 if shadow else len(sys.path), _PATH)
    return True


def install_for_children() -> None:
    """Make smdebug's names importable in every process that this one starts, also by a launcher or a shell."""
    add_to_python_path(_PATH)


def load_ipython_extension(shell: Any) -> None:
    """Install the aliases, also for scripts that a notebook runs, by `%load_ext`.

    Args:
        shell: IPython's shell.
    """
    if install():
        install_for_children()


def modules() -> list[str]:
    """Return the names of smdebug's modules that have an alias here, sorted."""
    return sorted(MODULES)


def _is_installed() -> bool:
    folders = [folder for folder in sys.path if folder != _PATH]
    spec = importlib.machinery.PathFinder.find_spec("smdebug", folders)
    if spec is not None and spec.origin is not None:  # and not only a folder of that name
        return True
    loaded = sys.modules.get("smdebug")
    return loaded is not None and not str(getattr(loaded, "__file__", "")).startswith(_PATH)


install(shadow=is_switched_on(SHADOW_VARIABLE, default=False))
