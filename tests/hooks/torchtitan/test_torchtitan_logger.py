"""The logger for torchtitan, in the container that its trainer logs to."""

from __future__ import annotations

import math

import pytest
import torch
from torchtitan.components.metrics import LoggerContainer

import tensortrial
from tensortrial.errors import ConfigurationError
from tensortrial.hooks.torchtitan import Logger


class TestTheLoggerForTorchtitan:
    def test_saves_what_the_container_logs_at_its_steps(self, out: str) -> None:
        container = LoggerContainer()
        container.add_logger(Logger(out))
        container.log({"loss_metrics/global_avg_loss": 2.5, "grad_norm": torch.tensor(3.0), "note": "x"}, 1)
        container.log({"loss_metrics/global_avg_loss": math.nan, "n_tokens_seen": 4096}, step=10)
        container.log({"loss_metrics/global_avg_loss": 1.5}, step=5)
        container.close()
        trial = tensortrial.create_trial(out)
        loss = trial.tensor("loss_metrics/global_avg_loss").values()
        assert math.isnan(loss.pop(10))
        assert loss == {1: 2.5, 5: 1.5}
        assert trial.tensor("grad_norm").values() == {1: 3.0}
        assert trial.tensor("n_tokens_seen").values() == {10: 4096.0}
        assert "note" not in trial.tensor_names()
        assert trial.loaded_all_steps

    def test_accepts_a_run_or_the_arguments_of_one(self, out: str) -> None:
        with tensortrial.Run(out) as run, pytest.raises(ConfigurationError, match="not both"):
            Logger(out, hook=run)
