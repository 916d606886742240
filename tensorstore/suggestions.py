"""Suggestions of similar names for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import Signature
from itertools import islice
from typing import Any

# The most names whose distance is computed, because a large model has more.
_MOST_COMPARED = 1000


def check_arguments(signature: Signature, /, *args: Any, **kwargs: Any) -> None:
    """Check that a call with these arguments is possible. Raises TypeError, which names a similar argument."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        unknown = next((each for each in kwargs if each not in signature.parameters), None)
        near = [] if unknown is None else near_names(unknown, signature.parameters, 1)
        raise TypeError(f"{exc}; did you mean {near[0]!r}?" if near else str(exc)) from None


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known names most similar to a wrong one: names that contain it, then names of a similar spelling.

    Args:
        name: The wrong name.
        known: The names to choose from.
        most: The most names to return.

    Returns:
        The names; empty if none is similar.
    """
    from difflib import get_close_matches  # for messages only

    known = list(known)
    part = name.lower()
    containing = sorted((each for each in known if part and part in each.lower()), key=len)[:most]
    by_lower = {each.lower(): each for each in islice(known, _MOST_COMPARED)}
    close = [by_lower[each] for each in get_close_matches(part, by_lower, n=most)]
    return list(dict.fromkeys([*containing, *close]))[:most]
