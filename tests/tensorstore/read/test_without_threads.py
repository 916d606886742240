"""Where no thread can be started, runs are read all the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import TRAIN, Job


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for name in "ab":
        with Job(tmp_path / name) as job:
            job.step({"x": 1.0, "large": np.ones(3_000_000, np.float32)}, TRAIN)
            job.step({"large": np.zeros(3_000_000, np.float32)}, TRAIN)
    return tmp_path


@pytest.fixture
def without_threads(runs: Path) -> Iterator[None]:
    """Ask for more memory for each new thread than there is."""
    before = threading.stack_size(1 << 46)
    yield
    threading.stack_size(before)


@pytest.mark.usefixtures("without_threads")
def test_runs_are_opened_and_queried_without_threads(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="can't start new thread"):
        threading.Thread(target=print).start()
    with tensortrial.open_runs(runs) as opened:
        rows = opened.sql("select run, steps, file_bytes > 0 from runs order by run", timeout=60).fetchall()
        assert rows == [("a", 2, True), ("b", 2, True)]
        assert opened.trial("a").sql("select count(*) from steps").fetchall() == [(2,)]
        assert [float(each.mean()) for each in opened.trial("b").tensor("large").values().values()] == [1, 0]
    tensortrial.export(runs, f"parquet:{tmp_path}/exported")
    assert list((tmp_path / "exported").rglob("*.parquet"))
