"""JSON and YAML that no tool should have written: a named error or a report, and the rest is imported."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tensortrial
from support.imported_runs import import_quietly, metadata, values
from tensortrial.errors import CorruptFile
from tensortrial.importers import lightning, transformers, wandb
from tensortrial.importers.documents import yaml_of


@pytest.mark.parametrize(
    "text",
    [
        *("!!bool x", "!!int ''", "!!int '-'", "!!int abc", "!!float x", "!!timestamp x", "2020-13-45", "!!pairs x"),
        *("2001-12-14t21:59:43.10-99:00", "!!python/tuple x", "!foo x", "<<", f"0x{'f' * 5000}", "9" * 5000),
    ],
)
def test_yaml_that_has_no_value_is_a_named_error(text: str) -> None:
    pytest.importorskip("yaml")
    with pytest.raises(CorruptFile, match=r"^hparams\.yaml: this is not YAML: "):
        yaml_of(f"a: {text}\n".encode(), "hparams.yaml")


def test_hyperparameters_that_cannot_be_read_are_reported_and_the_metrics_imported(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "metrics.csv").write_text("step,loss\n0,1\n")
    (tmp_path / "hparams.yaml").write_text("lr: !!bool x\n")
    (run,), reported = import_quietly(lightning.import_runs, tmp_path, tmp_path / "run")
    assert values(run, "loss") == {0: 1.0}
    (sentence,) = reported
    assert sentence.startswith(f"the hyperparameters: {tmp_path}/hparams.yaml: this is not YAML: ")


def test_a_number_of_400_digits_is_an_infinity_or_no_step(tmp_path: Path) -> None:
    large = int("9" * 400)
    history = [{"step": 0, "loss": large}, {"step": large, "loss": 1}, {"step": -large, "loss": 2}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history, "max_steps": large}))
    (run,), reported = import_quietly(transformers.import_runs, tmp_path, tmp_path / "run")
    assert values(run, "loss") == {0: float("inf")}
    assert metadata(run)["trainer"] == {"max_steps": str(large)}
    assert tensortrial.create_trial(run).verify().is_whole
    rounded, stepless = reported
    assert rounded.startswith(f"{tmp_path}: the last digits of 1 whole numbers above 2**53")
    assert stepless.startswith(f"{tmp_path}: 2 values whose step is no whole number from 0 to 1e12, such as 999")


def test_a_step_that_is_true_or_a_text_is_no_step(tmp_path: Path) -> None:
    history = [{"step": 1, "loss": 0.5}, *({"step": step, "loss": 9.0} for step in (True, "1", None, [1], 1.5))]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": history}))
    (run,), (sentence,) = import_quietly(transformers.import_runs, tmp_path, tmp_path / "run")
    assert values(run, "loss") == {1: 0.5}
    assert sentence.startswith(f"{tmp_path}: 5 values whose step is no whole number")


def test_a_histogram_whose_counts_no_integer_holds_is_left_out(tmp_path: Path) -> None:
    drawn = [{"_type": "histogram", "values": [count, 1.0], "bins": [0.0, 0.5, 2.0]} for count in (1e30, 2.0)]
    pq.write_table(pa.table({"_step": [0, 1], "weights": drawn}), tmp_path / "0000.parquet")
    (run,), _ = import_quietly(wandb.import_runs, tmp_path / "0000.parquet", tmp_path / "run")
    assert tensortrial.create_trial(run).tensor("weights").steps() == [1]
