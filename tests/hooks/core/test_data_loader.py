"""A trial in the workers of PyTorch's DataLoader, forked and spawned, and in scikit-learn's clone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from torch.utils.data import DataLoader

import tensortrial
from support.runs import Job
from support.saved_steps import SavedSteps
from tensortrial.read.trial import Trial


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    with Job(tmp_path / "run") as job:
        for step in range(8):
            job.step({"w": np.full(4, float(step))})
    return tensortrial.create_trial(tmp_path / "run")


@pytest.mark.parametrize("start", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_a_trial_is_read_in_the_workers_of_a_data_loader(trial: Trial, start: str) -> None:
    loader = DataLoader(SavedSteps(trial), batch_size=2, num_workers=2, multiprocessing_context=start)
    assert [batch[:, 0].tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert trial.steps() == [*range(8)]


def test_a_trial_can_be_cloned(trial: Trial) -> None:
    copied = clone(trial, safe=False)
    assert copied is not trial
    assert copied.steps() == trial.steps()
