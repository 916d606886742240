"""A progress bar, if one is requested and tqdm is installed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

DELAY_SECONDS = 2.0


@contextmanager
def progress_bar(total: float, wanted: bool, what: str, unit: str) -> Iterator[Callable[[float], object]]:
    """Show a bar if tqdm is installed, and yield the function that advances it by a number of units.

    On a terminal, a bar appears after `DELAY_SECONDS`. A pipe or a file has none, because the repeated lines of a bar
    would fill a job's log.
    """
    bar = _bar() if wanted else None
    if bar is None:
        yield lambda _: None
        return
    delay = 0 if in_notebook() else DELAY_SECONDS
    with bar(total=total, unit=unit, desc=what, dynamic_ncols=True, delay=delay) as shown:
        yield shown.update


def _bar() -> Any:
    """Return tqdm's class for a notebook or a terminal; None for other outputs, and without tqdm."""
    try:
        import tqdm

        if in_notebook():
            return importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return None
    return tqdm.tqdm if sys.stderr.isatty() else None


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    # IPython is already imported in a notebook, and is not imported elsewhere.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return type(shell).__name__ == "ZMQInteractiveShell"
