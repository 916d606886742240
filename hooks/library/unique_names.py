"""Unique names for tensors."""

from __future__ import annotations

import itertools


def take_name(taken: set[str], name: str, end: str = "") -> str:
    """Return a name, with a number before its `end` if it is taken, and take it."""
    names = (f"{name}_{number}{end}" if number else f"{name}{end}" for number in itertools.count())
    found = next(each for each in names if each not in taken)
    taken.add(found)
    return found
