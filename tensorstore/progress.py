"""A progress bar, where one is wanted and can be had."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: float, wanted: bool, what: str, unit: str) -> Iterator[Callable[[float], object]]:
    """Show a bar where tqdm is installed; gives what moves it on by so many units."""
    try:
        from tqdm import tqdm
    except ImportError:
        wanted = False
    if not wanted:
        yield lambda _: None
        return
    with tqdm(total=total, unit=unit, desc=what, dynamic_ncols=True) as bar:
        yield bar.update
