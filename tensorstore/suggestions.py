"""Names like a wrong one, for messages."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

# The distance of names is computed for this many at most: a large model has more.
_MOST_COMPARED = 1000


def near_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known names that are most like a wrong one: those that it is a part of, then those spelt like it.

    Args:
        name: The wrong name.
        known: The names to choose from.
        most: How many names are returned at most.

    Returns:
        The names; none if nothing is like it.
    """
    from difflib import get_close_matches  # for messages only

    known = list(known)
    part = name.lower()
    containing = sorted((each for each in known if part and part in each.lower()), key=len)[:most]
    by_lower = {each.lower(): each for each in islice(known, _MOST_COMPARED)}
    close = [by_lower[each] for each in get_close_matches(part, by_lower, n=most)]
    return list(dict.fromkeys([*containing, *close]))[:most]
