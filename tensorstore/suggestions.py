"""Suggestions of similar names for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

# The most names whose distance is computed, because a large model has more.
_MOST_COMPARED = 1000


def meant(given: Iterable[str], known: Iterable[str]) -> str:
    """Return a clause with the known name that is similar to the first unknown one; empty if there is none."""
    known = list(known)
    unknown = next((each for each in given if each not in known), None)
    near = [] if unknown is None else near_names(unknown, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


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
