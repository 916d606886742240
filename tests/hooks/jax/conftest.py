"""What the tests of JAX share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.made_hooks import made_hooks

# Read when JAX makes its devices: with several, arrays can be sharded.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")


@pytest.fixture
def make_hook(out: str) -> Iterator[Callable[..., Any]]:
    """Make hooks that save each step into `out`. They are closed after the test."""
    from tensortrial.hooks.jax import Hook

    with made_hooks(Hook, out) as make:
        yield make
