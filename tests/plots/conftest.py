"""Plots are drawn without a screen, and their figures are closed after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from support.runs import EVAL, TRAIN, Job

HOSTILE = "_$\\frac{<script>\n\x1b[31m"


@pytest.fixture(autouse=True)
def figures() -> Iterator[None]:
    """Draw into memory."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    yield
    matplotlib.pyplot.close("all")


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 12 steps of TRAIN, of which one was not saved, and 2 of EVAL.

    `gradient/last` is executed before `gradient/first`. Its norm is NaN at step 9 of TRAIN, and 0 at step 0.
    """
    folder = tmp_path_factory.mktemp("plots") / "run"
    with Job(folder) as job:
        for step in range(12):
            if step == 6:
                job.skip(TRAIN)
                continue
            scale = 10.0 ** (step / 2)
            last = np.full(4, np.nan if step == 9 else 0.0 if step == 0 else scale)
            values = {"gradient/last": last, "gradient/first": np.full((2, 3), scale), "loss": 1.0 / scale}
            job.step(values, TRAIN, statistics=("l2", "mean", "nan_count"), collections=("gradients",), histogram=True)
        for _ in range(2):
            job.step({"loss": 0.5, HOSTILE: np.arange(6.0)}, EVAL)
    return folder
