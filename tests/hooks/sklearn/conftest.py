"""The fixture that the tests of scikit-learn share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.made_hooks import made_hooks


@pytest.fixture
def make_hook(out: str) -> Iterator[Callable[..., Any]]:
    """Make hooks that save each step into `out`. They are closed after the test."""
    from tensortrial.hooks.sklearn import Hook

    with made_hooks(Hook, out) as make:
        yield make
