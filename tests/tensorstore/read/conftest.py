"""A small run, and a trial of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, TRAIN, Job
from tensortrial.config.collection import Collection
from tensortrial.read.trial import Trial


@pytest.fixture(scope="session")
def run_of_three_flushes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three flushes of two steps each, which no test changes."""
    folder = tmp_path_factory.mktemp("three_flushes") / "run"
    collections = [Collection("weights", include_regex="w"), Collection("losses", tensor_names=["loss"])]
    with Job(folder, flush_seconds=3600, collections=collections, saved=["weights"]) as job:
        for number in range(6):
            statistics = ("min", "abs_mean", "nan_count")
            job.put(step := job.begin(TRAIN if number % 2 else EVAL), {"loss": number / 2}, collections=("losses",))
            values = {"w": np.arange(4.0) + number}
            job.put(step, values, closes=True, statistics=statistics, collections=("weights",))
            if number % 2:
                job.flush()
    return folder


@pytest.fixture
def run(tmp_path: Path, run_of_three_flushes: Path) -> Path:
    """A copy of the run of three flushes."""
    shutil.copytree(run_of_three_flushes, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def trial(run: Path) -> Iterator[Trial]:
    trial = tensortrial.create_trial(run)
    yield trial
    trial.close()
