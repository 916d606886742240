"""Blocks of code in which trials do, or do not, find new data by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, overload

from .trial import Trial


@overload
def no_refresh(trials: Trial) -> AbstractContextManager[Trial]: ...
@overload
def no_refresh(trials: Iterable[Trial]) -> AbstractContextManager[list[Trial]]: ...
def no_refresh(trials: Trial | Iterable[Trial]) -> AbstractContextManager[Any]:
    """Stop trials from finding new data inside a `with` block: they read what they have seen so far.

    Args:
        trials: One trial, or several.

    Returns:
        The context manager. It yields the trial, or the list of trials, and restores what was before.
    """
    return _refreshing(trials, False)


@overload
def refresh(trials: Trial) -> AbstractContextManager[Trial]: ...
@overload
def refresh(trials: Iterable[Trial]) -> AbstractContextManager[list[Trial]]: ...
def refresh(trials: Trial | Iterable[Trial]) -> AbstractContextManager[Any]:
    """Allow trials to find new data by themselves inside a `with` block.

    Args:
        trials: One trial, or several.

    Returns:
        The context manager. It yields the trial, or the list of trials, and restores what was before.
    """
    return _refreshing(trials, True)


@contextmanager
def _refreshing(trials: Trial | Iterable[Trial], wanted: bool) -> Iterator[Trial | list[Trial]]:
    given = trials if isinstance(trials, Trial) else list(trials)
    with ExitStack() as stack:
        for trial in [given] if isinstance(given, Trial) else given:
            stack.enter_context(trial.refreshing(wanted))
        yield given
