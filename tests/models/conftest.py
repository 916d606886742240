"""What the tests of foreign models share: errors inside a hook are raised, and no hook outlives its test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENSORTRIAL_STRICT", "1")


@pytest.fixture(autouse=True)
def no_current_hook() -> Iterator[None]:
    yield
    from tensortrial.hooks.core.current_hook import del_hook

    del_hook()
