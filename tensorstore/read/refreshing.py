"""Blocks of code in which trials do, or do not, find new data by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from .trial import Trial


def no_refresh(trials: Trial | Iterable[Trial]) -> AbstractContextManager[None]:
    """Stop trials from finding new data inside a `with` block: they read what they have seen so far.

    Args:
        trials: One trial, or several.

    Returns:
        The context manager. It yields nothing, and restores what was before.
    """
    return _refreshing(trials, False)


def refresh(trials: Trial | Iterable[Trial]) -> AbstractContextManager[None]:
    """Allow trials to find new data by themselves inside a `with` block.

    Args:
        trials: One trial, or several.

    Returns:
        The context manager. It yields nothing, and restores what was before.
    """
    return _refreshing(trials, True)


@contextmanager
def _refreshing(trials: Trial | Iterable[Trial], wanted: bool) -> Iterator[None]:
    with ExitStack() as stack:
        for trial in [trials] if isinstance(trials, Trial) else list(trials):
            stack.enter_context(trial.refreshing(wanted))
        yield
