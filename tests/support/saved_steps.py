"""A run as a data set, in a module that a spawned process can import."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from tensortrial.read.trial import Trial


class SavedSteps(Dataset[Any]):
    """The saved values of a tensor, as the examples of another training."""

    def __init__(self, trial: Trial) -> None:
        self.tensor = trial.tensor("w")
        self.steps = self.tensor.steps()

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, number: int) -> torch.Tensor:
        return torch.from_numpy(self.tensor.value(self.steps[number]))
