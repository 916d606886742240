"""What the tests of runs with several index files share."""

from __future__ import annotations

import pytest

from support.limits import keep_index_files


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Keep the index file of each flush: a small run, which has tests of its own, would merge them as it closes."""
    if "small" not in request.node.name:
        keep_index_files(monkeypatch)
