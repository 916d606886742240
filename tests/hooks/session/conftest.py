"""The hook that the tests of sessions share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def make(out: str) -> Iterator[Callable[..., Any]]:
    """Make a hook that saves each step into `out`, unless an option says otherwise. It is closed after the test."""
    import tensortrial.hooks.session.hook as tt

    made: list[Any] = []

    def make(out_dir: str = out, **options: Any) -> Any:
        options.setdefault("save_config", tt.SaveConfig(save_interval=1))
        made.append(tt.SessionHook(out_dir, **options))
        return made[-1]

    yield make
    for hook in made:
        hook.close()
