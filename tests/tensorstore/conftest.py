"""A run of one step, and runs with several index files, for the tests of runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.limits import keep_index_files
from support.runs import Job


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Keep the index file of each flush: a small run, which has tests of its own, would merge them as it closes."""
    if "small" not in request.node.name:
        keep_index_files(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of one step."""
    with Job(tmp_path / "run") as job:
        job.step({"x": 1.0})
    return tmp_path / "run"
