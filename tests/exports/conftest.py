"""The run that most tests of exports only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.export_conformance import write_run


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps, which no test may change."""
    return write_run(tmp_path_factory.mktemp("exported") / "a")
