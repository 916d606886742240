"""What the tests of compaction share."""

from __future__ import annotations

import pytest

from support.limits import keep_index_files


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """What a run does by itself at its end has tests of its own."""
    if "small" not in request.node.name:
        keep_index_files(monkeypatch)
