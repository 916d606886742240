"""The configuration of Hydra's jobs as metadata, in jobs that Hydra starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import tensortrial
from tensortrial.errors import ConfigurationError
from tensortrial.hooks.hydra import job_metadata

PROGRAM = """
import hydra, tensortrial
from tensortrial.hooks.hydra import job_metadata

@hydra.main(version_base=None, config_path=".", config_name="train")
def train(config):
    with tensortrial.Run(f"run-{config.lr}", metadata=job_metadata(config)) as run:
        run.log({"loss": config.lr * 2}, step=0)

train()
"""


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.yaml").write_text(
        "lr: 0.1\nopt: {name: adam, betas: [0.9, 0.99]}\nhalf: ${opt.betas[0]}\nlater: ???\n"
    )
    (tmp_path / "job.py").write_text(PROGRAM)
    return tmp_path


def _run(job: Path, *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "job.py", *arguments], cwd=job, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


class TestAJobOfHydra:
    def test_keeps_its_composed_configuration(self, job: Path) -> None:
        _run(job, "lr=0.5", "opt.name=sgd")
        found = tensortrial.create_trial(job / "run-0.5").info.metadata
        assert found["opt"] == {"name": "sgd", "betas": [0.9, 0.99]}
        assert (found["lr"], found["half"], found["later"]) == (0.5, 0.9, "???")
        assert found["hydra"]["job"] == "job"
        assert found["hydra"]["overrides"] == ["lr=0.5", "opt.name=sgd"]
        assert Path(found["hydra"]["output_dir"]).is_dir()

    def test_of_a_sweep_keeps_its_number(self, job: Path) -> None:
        _run(job, "--multirun", "lr=1,2")
        numbers = {
            run.info.metadata["lr"]: run.info.metadata["hydra"]["number"]
            for run in map(tensortrial.create_trial, job.glob("run-*"))
        }
        assert numbers == {1: 0, 2: 1}
        rows = tensortrial.open_runs(job).sql("select metadata->>'lr' from runs order by all").fetchall()
        assert rows == [("1",), ("2",)]

    def test_has_no_job_where_hydra_started_none(self) -> None:
        assert job_metadata(OmegaConf.create({"lr": 0.1})) == {"lr": 0.1}

    @pytest.mark.parametrize(
        ("config", "sentence"),
        [
            ({"lr": 1}, "config must be the DictConfig that @hydra.main passes, got dict"),
            (OmegaConf.create([1]), "got ListConfig"),
            (OmegaConf.create({"a": "${b}"}), "the configuration cannot be resolved: .*'b' not found"),
        ],
    )
    def test_with_a_wrong_configuration_is_refused(self, config: object, sentence: str) -> None:
        with pytest.raises(ConfigurationError, match=sentence):
            job_metadata(config)
