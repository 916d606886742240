"""The logger for DLFW-Inspect, which passes statistics to it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from nvdlfw_inspect import api

import tensortrial
from tensortrial.errors import ConfigurationError
from tensortrial.hooks.nvdlfw_inspect import Logger


@pytest.fixture
def inspect(tmp_path: Path) -> Path:
    """A folder with a configuration for DLFW-Inspect that saves statistics of two layers."""
    (tmp_path / "config.yaml").write_text("""
stats:
  enabled: True
  layers:
    layer_name_regex_pattern: .*fc
  base:
    LogTensorStats:
      enabled: True
      tensors: [activation]
      stats: [min, max, mean]
      freq: 1
""")
    return tmp_path


class TestTheLoggerForInspect:
    def test_saves_the_statistics_of_layers_at_their_iterations(self, inspect: Path, out: str) -> None:
        import torch

        logger = Logger(out)
        api.initialize(str(inspect / "config.yaml"), statistics_logger=logger, log_dir=str(inspect))
        try:
            for iteration in range(3):
                tensor = torch.arange(4.0) * (iteration + 1)
                for layer in ("a.fc", "b.fc", "b.other"):
                    api.log_tensor_stats(
                        layer, tensor_name="activation", tensor=tensor, iteration=iteration, skip_reduction=True
                    )
                api.step()
        finally:
            api.end_debug()
        logger.close()
        trial = tensortrial.create_trial(out)
        found = {name: trial.tensor(name).values() for name in trial.tensor_names()}
        assert found["a.fc_activation_max"] == {0: 3.0, 1: 6.0, 2: 9.0}
        assert found["b.fc_activation_mean"] == {0: 1.5, 1: 3.0, 2: 4.5}
        assert len(found) == 6

    def test_saves_numbers_that_are_not_finite_and_steps_that_go_back(self, out: str) -> None:
        with tensortrial.Run(out) as run:
            logger = Logger(hook=run)
            for iteration, value in [(5, math.nan), (2, math.inf), (2, 1), (7, True)]:
                logger.log_scalar("layer/amax", value, iteration, level=20)
        values = tensortrial.create_trial(out).tensor("layer/amax").values()
        assert math.isnan(values.pop(5))
        assert values == {2: 1.0, 7: 1.0}

    def test_accepts_a_run_or_the_arguments_of_one(self, out: str, tmp_path: Path) -> None:
        with tensortrial.Run(out) as run, pytest.raises(ConfigurationError, match="not both"):
            Logger(tmp_path / "other", hook=run)
        with pytest.raises(ConfigurationError, match=r"hook must be a tensortrial\.Run, got 'x'"):
            Logger(hook="x")
        with pytest.raises(TypeError, match=r"help\(tensortrial\.Run\.__init__\)"):
            Logger(out, intervall=3)
