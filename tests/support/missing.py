"""Packages that are missing, although the environment of the tests has them."""

from __future__ import annotations

import sys

import pytest


def without(monkeypatch: pytest.MonkeyPatch, *packages: str, again: str = "") -> None:
    """Let imports of packages fail until the test ends, as where they are not installed.

    Args:
        monkeypatch: What ends with the test.
        *packages: The names of the packages.
        again: A package of this project that is imported again, with its modules, as if it had not been before.
    """
    for name in [name for name in sys.modules if again and f"{name}.".startswith(f"{again}.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in packages:
        monkeypatch.setitem(sys.modules, name, None)
