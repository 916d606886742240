"""Blocks of code in which trials do, or do not, look for new data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from .trial import Trial


def no_refresh(trials: Trial | Iterable[Trial]) -> AbstractContextManager[None]:
    """Inside `with no_refresh(trials):` the trials answer from what they have seen so far."""
    return _refreshing(trials, False)


def refresh(trials: Trial | Iterable[Trial]) -> AbstractContextManager[None]:
    """Inside `with refresh(trials):` the trials look for new data at each question."""
    return _refreshing(trials, True)


@contextmanager
def _refreshing(trials: Trial | Iterable[Trial], wanted: bool) -> Iterator[None]:
    with ExitStack() as stack:
        for trial in [trials] if isinstance(trials, Trial) else list(trials):
            stack.enter_context(trial.refreshing(wanted))
        yield
