"""Trials in a notebook: tables of HTML, tensors by their names, and data frames."""

from __future__ import annotations

import json
import pickle
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, TRAIN, Job
from support.waiting import wait_until
from tensortrial.errors import ConfigurationError, InvalidWorker, MissingExtra, TensorTrialError, TensorUnavailable

HOSTILE = "<script>alert(1)</script>&\x1b[2J\u202e"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook") / "run"
    with Job(folder) as job:
        for step in range(4):
            job.step({"gradient/a": np.full(4, float(step)), "loss": float(step)}, TRAIN, statistics=("l2",))
        job.step({"gradient/b": np.ones(4), HOSTILE: np.ones(2)}, EVAL, statistics=("l2",))
    return folder


def test_a_trial_is_a_container_of_its_tensors(run: Path) -> None:
    trial = tensortrial.create_trial(run)
    assert len(trial) == 4
    assert list(trial) == trial.tensor_names()
    assert "loss" in trial
    assert "nothing" not in trial
    assert 3 not in trial
    assert trial["loss"].name == "loss"
    assert "gradient/a" in trial._ipython_key_completions_()
    with pytest.raises(KeyError, match="did you mean 'loss'"):
        trial["los"]
    with pytest.raises(TensorUnavailable):
        trial["los"]


def test_a_run_that_has_saved_nothing_is_true(tmp_path: Path) -> None:
    with Job(tmp_path / "run"):
        trial = tensortrial.create_trial(tmp_path / "run")
        assert trial
        assert len(trial) == 0
        assert "running" in str(trial._repr_html_())


def test_tables_have_steps_by_mode_and_size_and_escape_names(run: Path) -> None:
    trial = tensortrial.create_trial(run, name=HOSTILE)
    # A table waits for the size for a tenth of a second, which is too short on a busy machine.
    wait_until(lambda: " of tensors<" in str(trial._repr_html_()))
    table = str(trial._repr_html_())
    for text in ("ended", "4: 0 to 3", "1: 0 to 0", "&lt;script&gt;"):
        assert text in table
    tensor = str(trial[HOSTILE]._repr_html_())
    assert "float64" in tensor
    assert "<th>steps GLOBAL</th>" in tensor
    assert "&lt;script&gt;" in tensor
    for hidden in ("<script", "\x1b", "\u202e"):
        assert hidden not in table + tensor


def test_a_closed_trial_shows_its_text(run: Path) -> None:
    trial = tensortrial.create_trial(run)
    trial.close()
    assert trial._repr_html_() is None


def test_runs_are_a_container_of_trials(run: Path) -> None:
    with tensortrial.open_runs(run.parent) as runs:
        assert runs["run"].steps() == [0, 1, 2, 3, 4]
        assert "run" in runs
        assert runs._ipython_key_completions_() == ["run"]
        assert "ended" in runs._repr_html_()


def test_a_collection_shows_its_tensors(run: Path) -> None:
    collection = tensortrial.Collection("c")
    collection.add_tensor_names([HOSTILE])
    shown = collection._repr_html_()
    assert "Collection c, 1 tensor<" in shown
    assert "&lt;script&gt;" in shown
    assert r"\x1b[2J\u202e" in shown


@pytest.mark.parametrize("engine", ["pandas", "polars"])
def test_a_frame_has_a_column_for_each_tensor(run: Path, engine: str) -> None:
    pytest.importorskip(engine)
    trial = tensortrial.create_trial(run)
    frame = trial.frame("gradient/*", "l2", engine=engine)
    assert list(frame.columns)[-2:] == ["gradient/a", "gradient/b"]
    np.testing.assert_array_equal(frame["gradient/a"].to_numpy(), [0, 2, 4, 6, np.nan])
    np.testing.assert_array_equal(frame["gradient/b"].to_numpy(), [np.nan] * 4 + [2])
    steps = frame.index if engine == "pandas" else frame["step"]
    assert list(steps) == [0, 1, 2, 3, 4]
    assert list(trial.frame("loss", mode=TRAIN, engine=engine)["loss"]) == [0, 1, 2, 3]


def test_a_frame_has_a_tensor_whose_name_has_brackets(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with tensortrial.Run(tmp_path / "run") as run:
        run.log({"layers[0]/norm?": 0.5, "layers0/norm1": 1.0}, step=0)
    frame = tensortrial.create_trial(tmp_path / "run").frame("layers[0]/norm?")
    assert frame["layers[0]/norm?"].tolist() == [0.5]


def test_a_frame_has_the_tensors_of_a_collection(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with tensortrial.Run(tmp_path / "run") as run:
        run.log({"loss": 0.5, "accuracy": 0.25}, step=0)
    trial = tensortrial.create_trial(tmp_path / "run")
    assert [list(trial.frame(names)) for names in ("losses", "all")] == [["loss"], ["accuracy", "loss"]]


def test_a_frame_has_each_statistic_of_a_scalar(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    values = [0.5, -2.0, 0.0, np.inf, np.nan]
    with tensortrial.Run(tmp_path / "run") as run:
        for step, value in enumerate(values):
            run.log({"loss": value}, step=step)
    trial = tensortrial.create_trial(tmp_path / "run")
    tensor = trial.tensor("loss")
    for name in (
        *("min", "max", "mean", "median", "sum", "prod", "std", "variance", "l1", "l2", "rms"),
        *("abs_min", "abs_max", "abs_mean", "abs_sum", "nan_count", "inf_count", "zero_count"),
    ):
        expected = [
            tensor.reduction_value(step, name.removeprefix("abs_"), abs=name[:4] == "abs_") for step in range(5)
        ]
        np.testing.assert_array_equal(trial.frame("*", name)["loss"].to_numpy(), expected, err_msg=name)


def test_a_frame_says_why_an_installed_package_cannot_be_imported(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "polars.py").write_text("raise ImportError('libfoo.so: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.partition(".")[0] == "polars"]:
        monkeypatch.delitem(sys.modules, name)
    trial = tensortrial.create_trial(run)
    with pytest.raises(MissingExtra, match=r"polars, which cannot be imported \(libfoo.so: .* file\): pip install"):
        trial.frame("gradient/*", "l2", engine="polars")


def test_a_frame_of_nothing_says_why(run: Path) -> None:
    trial = tensortrial.create_trial(run)
    with pytest.raises(ConfigurationError, match=r"no tensor matches 'gradient/c'; .*; did you mean 'gradient/[ab]'\?"):
        trial.frame("gradient/c", "l2")
    with pytest.raises(ConfigurationError, match="none of 2 matching tensors has a scalar value"):
        trial.frame("gradient/*")
    with pytest.raises(ConfigurationError, match="engine must be one of pandas, polars, got 'spark'"):
        trial.frame("loss", engine="spark")
    with pytest.raises(InvalidWorker, match="unknown worker 'nobody'; choose one of: worker_0"):
        trial.frame("loss", worker="nobody")


def test_an_answer_of_sql_is_a_table_of_its_first_rows(run: Path) -> None:
    trial = tensortrial.create_trial(run)
    table = trial.sql("select name, mode_step from tensors order by all")._repr_html_()
    assert "<th>name</th><th>mode_step</th>" in table
    assert "<td>loss</td><td>3</td>" in table
    assert "&lt;script&gt;" in table
    assert "<script" not in table
    many = trial.sql("select range as number from range(1000000)")._repr_html_()
    assert "<td>49</td></tr><tr><td colspan=1>and more</td>" in many
    assert "<td>50</td>" not in many


def test_collections_and_the_environment_are_dictionaries_and_tables(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path, include_collections=["mine"]) as saving:
        saving.get_collection("mine").include("x")
        saving.log({"x": 1.0}, step=0)
    trial = tensortrial.create_trial(tmp_path)
    assert "<th>mine</th><td>1 tensor</td>" in trial.collections()._repr_html_()
    assert isinstance(trial.collections(), dict)
    assert trial.environment()._repr_html_().startswith("<div><b>Environment</b>")
    assert pickle.loads(pickle.dumps(trial.environment())) == trial.environment()
    here = tensortrial.environment()
    assert "<th>host</th>" in here._repr_html_()
    assert json.loads(json.dumps(here)) == here


def test_a_diagnosis_and_a_comparison_are_shown_with_what_comes_first(tmp_path: Path) -> None:
    for name, wrong in (("good", 1.0), (HOSTILE.replace("/", ""), np.nan)):
        with Job(tmp_path / name) as job:
            for step in range(12):
                job.step({"gradient/<b>": np.array([1.0, wrong if step > 8 else 1.0])})
    good, bad = sorted(tmp_path.iterdir(), key=lambda path: path.name != "good")
    shown = tensortrial.diagnose(bad)._repr_html_()
    assert "<b>NaN begins at step 9, first in gradient/&lt;b&gt;.</b>" in shown
    assert "What to try: " in shown
    compared = tensortrial.compare(good, bad)._repr_html_()
    assert "first difference at step 9" in compared
    assert "<td>9</td>" in compared
    assert "<script" not in shown + compared
    healthy = tensortrial.diagnose(good)._repr_html_()
    assert "no problem in 12 steps" in healthy


def test_a_tensor_at_a_step_is_its_value(run: Path) -> None:
    tensor = tensortrial.create_trial(run)["gradient/a"]
    assert tensor[2].tolist() == [2.0] * 4
    with pytest.raises(KeyError, match="is not available at step 4"):
        tensor[4]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda run: tensortrial.create_trial(run / "none"),
        lambda run: tensortrial.create_trial(run).tensor("gradient/a").value(4),
        lambda run: tensortrial.create_trial(run).sql("select nme from tensors"),
        lambda run: tensortrial.create_trial(run).sql("selec 1"),
        lambda run: tensortrial.create_trial(run).sql("select name::int from tensors").fetchall(),
    ],
    ids=["no run", "no step", "no column", "no SQL", "no number"],
)
def test_an_error_is_one_traceback(run: Path, wrong: Callable[[Path], object]) -> None:
    with pytest.raises(TensorTrialError) as raised:
        wrong(run)
    assert "".join(traceback.format_exception(raised.value)).count("Traceback (most recent call last)") == 1


def test_dir_has_the_public_names_only() -> None:
    assert dir(tensortrial) == sorted(tensortrial.__all__)
