"""A progress bar, if one is requested and tqdm is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: float, wanted: bool, what: str, unit: str) -> Iterator[Callable[[float], object]]:
    """Show a bar if tqdm is installed, and yield the function that advances it by a number of units."""
    try:
        from tqdm import tqdm
    except ImportError:
        wanted = False
    if not wanted:
        yield lambda _: None
        return
    with tqdm(total=total, unit=unit, desc=what, dynamic_ncols=True) as bar:
        yield bar.update
