"""A run in smdebug's format, and where it is imported to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.smdebug_imports import COLLECTIONS
from support.smdebug_runs import OldRun


@pytest.fixture
def old(tmp_path: Path) -> OldRun:
    run = OldRun(tmp_path / "old")
    run.collections(COLLECTIONS)
    return run


@pytest.fixture
def new(tmp_path: Path) -> str:
    return str(tmp_path / "new")


@pytest.fixture
def three(old: OldRun) -> OldRun:
    for step in range(3):
        old.step({name: np.full(4, step, "f4") for name in ("a", "b", "c")}, "TRAIN", 2 * step, step)
    old.end()
    return old
