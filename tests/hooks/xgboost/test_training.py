"""The XGBoost hook in every way of training: early stopping, going on, cross-validation, scikit-learn, two workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")
from sklearn.datasets import load_diabetes  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402

import tensortrial.hooks.xgboost as tt  # noqa: E402
from support.boosting import PARAMETERS, cancer, frame, halves  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.memory import resident_bytes  # noqa: E402
from tensortrial import create_trial, modes, rules  # noqa: E402
from tensortrial.rules import invoke_rule  # noqa: E402

EVERY = {"save_interval": 1}


Make = Callable[..., tt.Hook]


def train(callbacks: list[Any], rounds: int = 4, **options: Any) -> Any:
    training, validation = cancer()
    evals = [(training, "train"), (validation, "validation")]
    return xgb.train(PARAMETERS, training, rounds, evals=evals, callbacks=callbacks, verbose_eval=False, **options)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]


# When.


def test_every_tenth_round_is_saved_by_default(out: str, tmp_path: Path) -> None:
    collection_config = tt.SaveConfig(start_step=5)
    hook = tt.Hook(out, save_config=tt.SaveConfig(end_step=15), include_collections=["feature_importance"])
    hook.get_collection("feature_importance").save_config = collection_config
    train([hook], 31)
    trial = closed(hook)
    assert trial.tensor("train-logloss").steps() == [0, 10]
    assert trial.steps() == [0, 10, 20, 30]
    assert trial.tensor_names(collection="feature_importance", step=0) == []
    # What a user wrote stays, also where it is what other frameworks have.
    assert tt.Hook(str(tmp_path / "b"), save_config=tt.SaveConfig(save_interval=500)).save_config.save_interval == 500


def test_early_stopping_ends_the_steps(make_hook: Make, out: str) -> None:
    _, validation = cancer()
    hook = make_hook(include_collections=["predictions"], validation_data=validation)
    booster = train([hook], 200, early_stopping_rounds=3)
    trial = create_trial(out)
    assert trial.steps() == list(range(booster.num_boosted_rounds()))
    assert booster.num_boosted_rounds() == booster.best_iteration + 4
    best = trial.tensor("validation-logloss").value(booster.best_iteration)
    assert float(best) == pytest.approx(booster.best_score)


@pytest.mark.parametrize("save_best", [False, True])
def test_the_last_round_is_saved_when_another_callback_ends_training(
    make_hook: Make, out: str, save_best: bool
) -> None:
    _, validation = cancer()
    log: dict[str, Any] = {}
    hook = make_hook(include_collections=["predictions"], validation_data=validation)
    stopping = xgb.callback.EarlyStopping(rounds=3, save_best=save_best)
    booster = train([stopping, hook], 200, evals_result=log)
    trial, rounds = create_trial(out), len(log["train"]["logloss"])
    assert trial.steps() == list(range(rounds))
    assert float(trial.tensor("train-logloss").value(rounds - 1)) == log["train"]["logloss"][-1]
    # A model that was cut back cannot say what it predicted before.
    assert trial.tensor("predictions").steps() == list(range(rounds - save_best))
    if not save_best:
        np.testing.assert_array_equal(trial.tensor("predictions").value(rounds - 1), booster.predict(validation))


def test_a_round_that_another_callback_prevents_is_no_step(make_hook: Make) -> None:
    class Stop(xgb.callback.TrainingCallback):  # type: ignore[misc]
        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            return epoch == 2

    hook = make_hook()
    train([hook, Stop()])
    assert closed(hook).steps() == [0, 1]


def test_steps_continue_after_those_of_a_trained_booster(make_hook: Make, out: str, tmp_path: Path) -> None:
    _, validation = cancer()
    first = make_hook(include_collections=["trees", "predictions"], validation_data=validation)
    booster = train([first], 3)
    booster = train([first], 2, xgb_model=booster)
    assert create_trial(out).steps() == [0, 1, 2, 3, 4]
    # Another hook's run begins where the booster is.
    second = make_hook(out_dir=str(tmp_path / "second"), include_collections=["trees", "predictions"])
    second.validation_data = validation
    booster = train([second], 2, xgb_model=booster)
    trial = create_trial(tmp_path / "second")
    assert trial.steps() == [5, 6]
    assert set(trial.tensor("trees/Tree").value(5)) == {5}
    np.testing.assert_array_equal(trial.tensor("predictions").value(6), booster.predict(validation))
    # A run that is resumed goes on after its own last step.
    second.close()
    third = make_hook(out_dir=str(tmp_path / "second"), resume=True)
    train([third], 2, xgb_model=booster)
    assert create_trial(tmp_path / "second").steps() == [5, 6, 7, 8]


@pytest.mark.parametrize("rounds", [3, 5, 6])
@pytest.mark.parametrize("same_process", [False, True])
def test_a_run_that_goes_on_from_a_checkpoint_has_each_round_at_its_step(
    make_hook: Make, rounds: int, same_process: bool
) -> None:
    """The run has five rounds, the checkpoint fewer, as many or more."""
    hook = make_hook()
    train([hook], 5)
    if not same_process:
        hook.close()
        hook = make_hook(resume=True)
    log: dict[str, Any] = {}
    train([hook], 2, xgb_model=train([], rounds), evals_result=log)
    trial = closed(hook)
    loss = trial.tensor("train-logloss")
    assert loss.steps() == [*range(min(rounds, 5)), rounds, rounds + 1]
    assert [float(loss.value(step)) for step in (rounds, rounds + 1)] == log["train"]["logloss"]
    assert trial.sql("select count(distinct global_step) from superseded").fetchall() == [(max(0, 5 - rounds),)]


def test_a_model_that_goes_on_after_another_one_was_trained_takes_no_steps_of_that(make_hook: Make) -> None:
    hook = make_hook()
    first = train([hook], 3)
    train([hook], 3)
    train([hook], 2, xgb_model=first)
    assert closed(hook).steps() == list(range(8))


def test_steps_count_in_the_mode_that_is_set(make_hook: Make, out: str) -> None:
    hook = make_hook()
    hook.set_mode(tt.modes.TRAIN)
    train([hook], 2, xgb_model=train([], 3))
    assert create_trial(out).steps(modes.TRAIN) == [3, 4]


def test_nothing_is_computed_that_is_not_due(make_hook: Make, out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Statistics that are computed in vain are seen only at the calls."""
    training, validation = cancer()
    collections = ["predictions", "full_shap", "trees", "feature_importance", "hyperparameters"]
    hook = make_hook(include_collections=collections, train_data=training, validation_data=validation)
    for name in collections:
        hook.get_collection(name).save_config = tt.SaveConfig(save_steps=[2], end_step=0)
    called: list[str] = []
    for name in ("predict", "get_score", "save_raw", "save_config"):
        plain = getattr(xgb.Booster, name)

        def counted(self: Any, *args: Any, name: str = name, plain: Any = plain, **options: Any) -> Any:
            called.append(f"{name} at {self.num_boosted_rounds()}")
            return plain(self, *args, **options)

        monkeypatch.setattr(xgb.Booster, name, counted)
    train([hook], 5)
    # The names of the model are read once, at the first saved round.
    assert set(called) <= {"save_config at 1", "save_config at 3", "predict at 3", "save_raw at 1", "get_score at 3"}
    assert create_trial(out).tensor("predictions").steps() == [2]


@pytest.mark.parametrize("switch", ["TENSORTRIAL", "dry_run"])
def test_a_hook_that_is_switched_off_computes_nothing(out: str, switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if switch == "TENSORTRIAL":
        monkeypatch.setenv(switch, "0")
    monkeypatch.setattr(xgb, "DMatrix", None)
    hook = tt.Hook(out, save_all=True, train_data=np.ones((2, 2)), validation_data="x", dry_run=switch == "dry_run")
    monkeypatch.undo()
    assert hook.train_data is None
    train([hook], 2)
    hook.close()
    assert not os.path.exists(out)


# Cross-validation.


def test_cross_validation_is_saved(make_hook: Make, out: str, caplog: pytest.LogCaptureFixture) -> None:
    training, _ = cancer()
    hook = make_hook(save_all=True, train_data=training, validation_data=training)
    boosters: list[Any] = []

    class Keep(xgb.callback.TrainingCallback):
        def after_training(self, model: Any) -> Any:
            boosters.extend(fold.bst for fold in model.cvfolds)
            return model

    metrics = ("logloss", "auc")
    results = xgb.cv(
        PARAMETERS, training, 4, nfold=3, metrics=metrics, callbacks=[hook, Keep()], as_pandas=False, verbose_eval=False
    )
    trial = create_trial(out)
    assert trial.tensor_names(collection="metrics") == sorted(results)
    for name, expected in results.items():
        assert [float(value) for value in trial.tensor(name).values().values()] == pytest.approx(expected)
    assert trial.tensor_names(collection="losses") == ["test-logloss-mean", "train-logloss-mean"]
    scores = [booster.get_score(importance_type="gain") for booster in boosters]
    for feature in {feature for score in scores for feature in score}:
        expected = np.mean([score.get(feature, 0) for score in scores])
        assert float(trial.tensor(f"feature_importance/gain/{feature}").value(3)) == pytest.approx(expected)
    assert not trial.has_tensor("predictions")
    assert messages(caplog) == [
        "no predictions, labels, SHAP values and trees are saved of a cross-validation, which has several models; "
        "train one model by xgboost.train to save them"
    ]


# scikit-learn.


def test_a_classifier_of_scikit_learn_is_saved(make_hook: Make, out: str) -> None:
    (x, y), (held_x, held_y) = halves(*frame())
    hook = make_hook(save_all=True, train_data=x, validation_data=(held_x, held_y))
    model = xgb.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1, callbacks=[hook], eval_metric=["auc", "logloss"])
    model.fit(x, y, eval_set=[(x, y), (held_x, held_y)], verbose=False)
    trial = create_trial(out)
    log = model.evals_result()
    for name in ("validation_0-auc", "validation_1-logloss"):
        data, metric = name.split("-")
        assert [float(value) for value in trial.tensor(name).values().values()] == log[data][metric]
    np.testing.assert_allclose(trial.tensor("predictions").value(3), model.predict_proba(held_x)[:, 1], rtol=1e-6)
    gain = {f: float(trial.tensor(f"feature_importance/gain/{f}").value(3)) for f in model.get_booster().get_score()}
    assert gain == model.get_booster().get_score(importance_type="gain")


def test_a_regressor_of_scikit_learn_is_saved(make_hook: Make, out: str) -> None:
    x, y = load_diabetes(return_X_y=True)
    model = xgb.XGBRegressor(
        n_estimators=3, n_jobs=1, callbacks=[make_hook(validation_data=x, include_regex="^predic")]
    )
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    trial = create_trial(out)
    assert trial.tensor_names() == ["predictions", "validation_0-rmse"]
    np.testing.assert_allclose(trial.tensor("predictions").value(2), model.predict(x), rtol=1e-6)


def test_copies_of_an_estimator_save_nothing_and_log_it(
    make_hook: Make, out: str, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = frame()
    model = xgb.XGBClassifier(n_estimators=2, n_jobs=1, callbacks=[make_hook()])
    search = GridSearchCV(model, {"max_depth": [1, 2]}, cv=2)
    search.fit(x, y)
    assert search.best_score_ > 0.8
    assert not os.path.exists(out)
    said = messages(caplog)
    assert said
    assert all(f"nothing is saved by this hook: it is a copy of the hook of {out}" in each for each in said)
    # The estimator itself still has its hook.
    model.fit(x, y, eval_set=[(x, y)], verbose=False)
    assert create_trial(out).steps() == [0, 1]


# Odd values, and the end.


def test_odd_hyperparameters_leave_the_hook_on(make_hook: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    odd = {"none": None, "lists": [[1], [2, 3]], "object": object(), "\ud800": "\ud800"}
    hook = make_hook(include_collections=["hyperparameters"], hyperparameters={**odd, 5: "five"})
    train([hook], 2)
    trial = closed(hook)
    assert trial.tensor("train-logloss").steps() == [0, 1]
    assert trial.tensor("hyperparameters/5").value(0) == "five"
    assert not trial.snapshot.workers.failures


@pytest.mark.slow
def test_the_memory_of_closed_jobs_is_free(tmp_path: Path) -> None:
    hooks, used = [], []

    def job(number: int) -> None:
        rows = np.random.default_rng(number).normal(size=(250_000, 10)).astype(np.float32)
        hooks.append(hook := tt.Hook(tmp_path / str(number), train_data=rows, validation_data=(rows, rows[:, 0])))
        data = xgb.DMatrix(rows, rows[:, 0], nthread=1)
        xgb.train({"max_depth": 1, "nthread": 1}, data, 1, callbacks=[hook])
        hook.close()

    for number in range(6):
        job(number)
        used.append(resident_bytes())
    # A notebook keeps its hooks. Each of the last four would leave 2 x 10 MiB of data, and more in XGBoost.
    assert used[-1] - used[1] < 60 << 20


# Rules.


def test_rules_watch_boosting(make_hook: Make) -> None:
    training, validation = cancer()
    noisy = np.array(training.get_label())
    noisy[::4] = 1 - noisy[::4]
    training.set_label(noisy)
    hook = make_hook(include_collections=["feature_importance", "trees", "losses"])
    parameters = {**PARAMETERS, "max_depth": 8, "eval_metric": ["auc", "logloss"]}
    evals = [(training, "train"), (validation, "validation")]
    xgb.train(parameters, training, 30, evals=evals, callbacks=[hook], verbose_eval=False)
    trial = closed(hook)
    deep = invoke_rule(rules.TreeDepth(trial, depth=4))
    nodes = trial.tensor("trees/Node").values()
    assert [finding.step for finding in deep] == [step for step, ids in nodes.items() if ids.max() >= 32]
    (first, *_) = invoke_rule(rules.FeatureImportanceOverweight(trial, threshold=0.5, nfeatures=8))
    weights = sorted(
        (
            float(trial.tensor(name).value(first.step))
            for name in trial.tensor_names(regex="importance/weight", step=first.step)
        ),
        reverse=True,
    )
    assert first.observed == pytest.approx(sum(weights[:8]) / sum(weights))
    overfit = invoke_rule(rules.Overfit(trial, ratio_threshold=0.5))
    assert overfit
    train_loss, loss = (trial.tensor(f"{data}-logloss").values() for data in ("train", "validation"))
    assert [finding.step for finding in overfit] == [
        step for step in loss if float(loss[step] - train_loss[step]) / float(train_loss[step]) > 0.5
    ]
    assert invoke_rule(rules.LossNotDecreasing(trial, num_steps=5))


# Two workers.

WORKER = """
import json, sys
import numpy as np
import xgboost as xgb
from support import warm  # noqa: E402
from support.boosting import PARAMETERS, frame
import tensortrial.hooks.xgboost as tt

rank, arguments = int(sys.argv[1]), json.loads(sys.argv[2])
with xgb.collective.CommunicatorContext(**arguments, dmlc_task_id=str(rank)):
    rank = xgb.collective.get_rank()
    x, y = frame()
    x, y = x[rank::2], y[rank::2]
    data = xgb.DMatrix(x, y, nthread=1)
    # An array: all workers make a DMatrix of it together, also one that saves nothing.
    for workers in ("one", "all"):
        hook = tt.Hook(workers, save_config=tt.SaveConfig(save_interval=1), save_all=True, include_workers=workers,
                       train_data=x.to_numpy(), validation_data=(x, y))
        booster = xgb.train(PARAMETERS, data, 3, evals=[(data, "train")], callbacks=[hook], verbose_eval=False)
        hook.close()
    print(json.dumps({"rank": rank, "worker": hook.worker, "predictions": booster.predict(data).tolist()}))
"""


@pytest.mark.slow
@pytest.mark.distributed
def test_two_workers_are_saved(tmp_path: Path) -> None:
    from xgboost.tracker import RabitTracker

    (tmp_path / "worker.py").write_text(textwrap.dedent(WORKER))
    tracker = RabitTracker(2, "127.0.0.1")
    tracker.start()
    arguments = json.dumps(tracker.worker_args())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    said = {}
    with ExitStack() as stack:
        processes = []
        for rank in range(2):
            command = [sys.executable, tmp_path / "worker.py", str(rank), arguments]
            process = subprocess.Popen(
                command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            processes.append(stack.enter_context(process))
            stack.callback(process.kill)
        for process in processes:
            printed, errors = process.communicate(timeout=90)
            assert process.returncode == 0, errors
            answer = json.loads(printed.splitlines()[-1])
            said[answer["rank"]] = answer
    tracker.wait_for(10)
    assert [said[rank]["worker"] for rank in range(2)] == ["worker_0", "worker_1"]
    for workers, expected in (("one", ["worker_0"]), ("all", ["worker_0", "worker_1"])):
        trial = create_trial(tmp_path / workers)
        assert trial.workers() == expected
        assert trial.num_workers == len(expected)
        assert trial.loaded_all_steps
        assert trial.steps() == [0, 1, 2]
        for rank, worker in enumerate(expected):
            found = trial.tensor("predictions").value(2, worker=worker)
            np.testing.assert_allclose(found, said[rank]["predictions"], rtol=1e-6)
    # The model is one, and so is its metric over all data.
    for name in ("train-logloss", trial.tensor_names(regex="feature_importance/gain", step=0)[0]):
        one, two = (float(trial.tensor(name).value(2, worker=worker)) for worker in expected)
        assert one == pytest.approx(two)
