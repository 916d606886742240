"""What the CatBoost hook saves of the jobs that people write."""

from __future__ import annotations

import logging
from shutil import copyfile
from typing import Any

import numpy as np
import pytest

catboost = pytest.importorskip("catboost")
datasets = pytest.importorskip("sklearn.datasets")
import tensortrial.hooks.catboost as tt  # noqa: E402
from support.hook_conformance import Broken  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402
from tensortrial.hooks.catboost.trees import CHILD_COLUMNS, SPLIT_COLUMNS  # noqa: E402

OPTIONS: dict[str, Any] = {"depth": 3, "verbose": 0, "thread_count": 1, "allow_writing_files": False, "random_seed": 1}


def cancer() -> tuple[Any, Any, Any, Any]:
    x, y = datasets.load_breast_cancer(return_X_y=True, as_frame=True)
    return x[::2], y[::2], x[1::2], y[1::2]


class Share:
    """A metric of the user's own."""

    def get_final_error(self, error: float, weight: float) -> float:
        return error / weight

    def is_max_optimal(self) -> bool:
        return False

    def evaluate(self, approxes: Any, target: Any, weight: Any) -> tuple[float, float]:
        return float(sum(1 for each in approxes[0] if each > 0)), float(len(target))


def test_the_metrics_of_every_evaluation_set_are_saved(make_hook: Any) -> None:
    x, y, held_x, held_y = cancer()
    hook = make_hook()
    model = catboost.CatBoostClassifier(iterations=5, custom_metric=["AUC"], **OPTIONS)
    model.fit(x, y, eval_set=[(held_x, held_y), (x, y)], callbacks=[hook])
    trial = closed(hook)
    expected = {
        f"{data}-{metric}": values
        for data, found in model.get_evals_result().items()
        for metric, values in found.items()
    }
    assert set(trial.tensor_names(collection="metrics")) == set(expected)
    for name, values in expected.items():
        assert [trial.tensor(name).value(step) for step in range(5)] == values
    assert trial.tensor_names(collection="losses") == [
        *("learn-Logloss", "validation_0-Logloss", "validation_1-Logloss")
    ]
    assert trial.info.framework == "catboost"


def test_metrics_are_saved_at_every_round_by_default(out: str) -> None:
    x, y, held_x, held_y = cancer()
    hook = tt.Hook(out)
    catboost.CatBoostClassifier(iterations=13, **OPTIONS).fit(x, y, eval_set=(held_x, held_y), callbacks=[hook])
    trial = closed(hook)
    assert {name: trial.tensor(name).steps() for name in trial.tensor_names()} == {
        "learn-Logloss": list(range(13)),
        "validation-Logloss": list(range(13)),
    }


def test_a_trained_model_saves_importances_trees_and_hyperparameters(make_hook: Any) -> None:
    x, y, *_ = cancer()
    hook = make_hook()
    model = catboost.CatBoostClassifier(iterations=4, **OPTIONS)
    model.fit(x, y, callbacks=[hook])
    hook.save_model(model)
    trial = closed(hook)
    found = [trial.tensor(f"feature_importance/default/{name}").value(3) for name in model.feature_names_]
    np.testing.assert_allclose(found, model.get_feature_importance())
    np.testing.assert_array_equal(trial.tensor("trees/leaf_values").value(3), model.get_leaf_values())
    assert trial.tensor("trees/leaf_counts").value(3).tolist() == [8] * 4
    assert trial.tensor("hyperparameters/depth").value(3) == 3
    leaves = ["trees/leaf_counts", "trees/leaf_values", "trees/leaf_weights"]
    assert trial.tensor_names(collection="trees") == [*leaves, *sorted(f"trees/{column}" for column in SPLIT_COLUMNS)]
    assert trial.tensor("trees/split_tree").value(3).tolist() == sorted([0, 1, 2, 3] * 3)
    border = dict(
        zip(trial.tensor("trees/split_feature").value(3), trial.tensor("trees/split_border").value(3), strict=True)
    )
    used = {name for name, gain in zip(model.feature_names_, model.get_feature_importance(), strict=True) if gain}
    assert used <= set(border)
    assert all(x[name].min() <= each <= x[name].max() for name, each in border.items())
    assert trial.steps() == [0, 1, 2, 3]


@pytest.mark.parametrize("policy", ["Depthwise", "Lossguide"])
def test_trees_that_are_not_symmetric_predict_by_what_is_saved(make_hook: Any, policy: str) -> None:
    x, y, *_ = cancer()
    hook = make_hook()
    model = catboost.CatBoostRegressor(iterations=5, grow_policy=policy, min_data_in_leaf=5, **{**OPTIONS, "depth": 6})
    model.fit(x, y)
    hook.save_model(model)
    trial = closed(hook)
    columns = [*SPLIT_COLUMNS, *CHILD_COLUMNS, "leaf_values"]
    tree, _, feature, border, left, right, leaves = (trial.tensor(f"trees/{name}").value(0) for name in columns)
    scale, bias = model.get_scale_and_bias()
    roots = [tree.tolist().index(number) for number in range(5)]

    def predict(row: Any) -> float:
        total = 0.0
        for node in roots:
            while node >= 0:
                node = (right if row[feature[node]] > border[node] else left)[node]
            total += leaves[-1 - node]
        return float(scale * total + bias)

    assert sorted(leaves) == sorted(model.get_leaf_values())
    assert sorted(trial.tensor("trees/leaf_weights").value(0)) == sorted(model.get_leaf_weights())
    np.testing.assert_allclose([predict(x.iloc[row]) for row in range(50)], model.predict(x[:50]))


def test_a_model_that_never_splits_has_leaves_only(make_hook: Any) -> None:
    x, y, *_ = cancer()
    hook = make_hook()
    model = catboost.CatBoostRegressor(iterations=2, grow_policy="Lossguide", min_data_in_leaf=10_000, **OPTIONS)
    model.fit(x, y)
    hook.save_model(model)
    trial = closed(hook)
    assert trial.tensor("trees/leaf_counts").value(0).tolist() == [1, 1]
    assert not trial.has_tensor("trees/split_tree")


@pytest.mark.parametrize("policy", ["SymmetricTree", "Lossguide"])
def test_categories_and_missing_values_of_several_classes(make_hook: Any, policy: str) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 6, 300)
    frame = pandas.DataFrame({"kind": [f"k{each}" for each in kind], "x": rng.normal(size=300)})
    frame.loc[::7, "x"] = np.nan
    hook = make_hook()
    model = catboost.CatBoostClassifier(iterations=3, grow_policy=policy, **OPTIONS)
    model.fit(frame, kind % 3, cat_features=["kind"], eval_set=(frame, kind % 3), callbacks=[hook])
    hook.save_model(model)
    trial = closed(hook)
    assert trial.tensor_names(collection="losses") == ["learn-MultiClass", "validation-MultiClass"]
    assert trial.tensor("feature_importance/default/kind").value(2) > 50
    assert set(trial.tensor("trees/split_type").value(2).tolist()) == {"FloatFeature", "OnlineCtr"}
    assert trial.has_tensor("trees/split_left") is (policy == "Lossguide")
    assert trial.tensor("trees/leaf_values").shape(2)[0] == len(model.get_leaf_values())


def test_a_metric_that_is_not_computed_at_each_round_is_saved_where_it_is(make_hook: Any) -> None:
    x, y, held_x, held_y = cancer()
    hook = make_hook()
    model = catboost.CatBoostClassifier(iterations=7, metric_period=3, eval_metric="AUC", **OPTIONS)
    model.fit(x, y, eval_set=(held_x, held_y), callbacks=[hook])
    trial = closed(hook)
    for name in ("validation-AUC", "validation-Logloss"):
        data, _, metric = name.partition("-")
        values = model.get_evals_result()[data][metric]
        tensor = trial.tensor(name)
        assert [tensor.value(step) for step in tensor.steps()] == values


@pytest.mark.filterwarnings("ignore:Failed to import numba")
def test_metrics_of_ranking_and_of_the_users_own_are_saved(make_hook: Any, out: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = (x[:, 0] > 0).astype(float)
    hook = make_hook()
    pool = catboost.Pool(x, y, group_id=np.repeat(np.arange(10), 20))
    model = catboost.CatBoostRanker(iterations=3, loss_function="YetiRank", custom_metric=["NDCG:top=3"], **OPTIONS)
    model.fit(pool, eval_set=pool, callbacks=[hook])
    hook.save_model(model)
    trial = closed(hook)
    importances = [trial.tensor(f"feature_importance/default/{feature}").value(2) for feature in range(3)]
    assert importances == model.get_feature_importance(type="PredictionValuesChange").tolist()
    assert trial.tensor_names(collection="trees")
    assert any("NDCG:top=3" in name for name in trial.tensor_names(collection="metrics"))
    assert not [name for name in trial.tensor_names(collection="losses") if "NDCG" in name]
    own = make_hook(f"{out}-own")
    model = catboost.CatBoostClassifier(iterations=3, eval_metric=Share(), **OPTIONS)
    model.fit(x, y, eval_set=(x, y), callbacks=[own])
    own.close()
    assert "validation-Share" in create_trial(f"{out}-own").tensor_names(collection="losses")


def test_training_that_stops_early_and_goes_on_continues_its_steps(make_hook: Any) -> None:
    x, y, held_x, held_y = cancer()
    hook = make_hook()
    model = catboost.CatBoostClassifier(iterations=200, learning_rate=0.9, early_stopping_rounds=2, **OPTIONS)
    model.fit(x, y, eval_set=(held_x, held_y), callbacks=[hook])
    rounds = len(model.get_evals_result()["validation"]["Logloss"])
    assert rounds < 200
    assert hook.mode_steps[hook.mode] == rounds - 1
    more = catboost.CatBoostClassifier(iterations=2, **OPTIONS)
    more.fit(x, y, init_model=model, callbacks=[hook])
    assert closed(hook).steps() == list(range(rounds + 2))


class Stop:
    """A callback that ends training after a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def after_iteration(self, info: Any) -> bool:
        return bool(info.iteration < self.after)


def validation_losses(out: str) -> dict[int, float]:
    loss = create_trial(out).tensor("validation-Logloss")
    return {step: loss.value(step) for step in loss.steps()}


@pytest.mark.parametrize("position", ["before", "after"])
def test_the_last_round_is_saved_when_another_callback_ends_training(make_hook: Any, out: str, position: str) -> None:
    x, y, held_x, held_y = cancer()
    hook = make_hook()
    model = catboost.CatBoostClassifier(iterations=9, **OPTIONS)
    callbacks = [Stop(4), hook] if position == "before" else [hook, Stop(4)]
    model.fit(x, y, eval_set=(held_x, held_y), callbacks=callbacks)
    for _ in range(2):
        hook.save_model(model)
    hook.close()
    expected = model.get_evals_result()["validation"]["Logloss"]
    assert list(validation_losses(out).items()) == list(enumerate(expected))
    assert create_trial(out).tensor("trees/leaf_counts").steps() == [3]


@pytest.mark.parametrize("kept", [3, 5])
@pytest.mark.parametrize("way", ["resume", "same hook", "another run"])
def test_a_training_that_goes_on_from_a_snapshot_has_each_round_at_its_step(
    make_hook: Any, out: str, tmp_path: Any, way: str, kept: int
) -> None:
    """It ended after five rounds; its snapshot has as many, or three."""
    x, y, held_x, held_y = cancer()
    options = {**OPTIONS, "allow_writing_files": True, "train_dir": str(tmp_path / "training")}
    snapshot = tmp_path / "training" / "snapshot"
    saves = {"save_snapshot": True, "snapshot_file": str(snapshot), "snapshot_interval": 0}

    class Keep:
        def after_iteration(self, info: Any) -> bool:
            if info.iteration == kept + 1:
                copyfile(snapshot, tmp_path / "kept")
            return True

    def fit(callbacks: list[Any]) -> Any:
        model = catboost.CatBoostClassifier(iterations=8, **options)
        return model.fit(x, y, eval_set=(held_x, held_y), callbacks=callbacks, **saves)

    hook = make_hook()
    fit([hook, Keep(), Stop(5)])
    if kept < 5:
        copyfile(tmp_path / "kept", snapshot)
    if way != "same hook":
        hook.close()
        hook = make_hook(out, resume=True) if way == "resume" else make_hook(f"{out}-2")
    model = fit([hook])
    hook.close()
    expected = dict(enumerate(model.get_evals_result()["validation"]["Logloss"]))
    assert len(expected) == 8
    found = validation_losses(hook.out_dir)
    assert list(found) == list(range(kept if way == "another run" else 0, 8))
    assert found == {step: expected[step] for step in found}


def test_a_run_is_resumed(make_hook: Any, out: str) -> None:
    x, y, *_ = cancer()
    for _ in range(2):
        hook = make_hook(resume=True)
        catboost.CatBoostClassifier(iterations=3, **OPTIONS).fit(x, y, callbacks=[hook])
        hook.close()
    assert create_trial(out).steps() == list(range(6))


@pytest.mark.parametrize("as_pandas", [True, False])
def test_the_results_of_a_cross_validation_are_saved(make_hook: Any, as_pandas: bool, capsys: Any) -> None:
    x, y, *_ = cancer()
    options = {**OPTIONS, "iterations": 4, "loss_function": "Logloss"}
    results = catboost.cv(catboost.Pool(x, y), options, fold_count=3, as_pandas=as_pandas)
    hook = make_hook()
    hook.save_cv_results(results)
    trial = closed(hook)
    assert [trial.tensor("test-Logloss-mean").value(step) for step in range(4)] == list(results["test-Logloss-mean"])
    assert trial.tensor_names(collection="losses") == ["test-Logloss-mean", "train-Logloss-mean"]


def test_wrong_arguments_are_refused_and_the_hook_stays_on(make_hook: Any) -> None:
    hook = make_hook()
    for call in (hook.save_model, hook.save_cv_results):
        for value in (None, 3, catboost.CatBoostClassifier()):
            with pytest.raises(ConfigurationError, match=r"it takes"):
                call(value)
    assert hook.recorder.active


def test_an_error_inside_the_hook_does_not_reach_training(
    make_hook: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    x, y, *_ = cancer()
    hook = make_hook(include_collections=["broken"])
    hook.add_collection(Broken("broken", ".*"))
    model = catboost.CatBoostClassifier(iterations=3, **OPTIONS)
    with caplog.at_level(logging.ERROR, "tensortrial"):
        model.fit(x, y, callbacks=[hook])
    assert model.tree_count_ == 3
    assert len(caplog.records) == 1
    caplog.clear()


def test_the_public_names_are_those_of_every_hook(make_hook: Any) -> None:
    hook = make_hook()
    assert tt.get_hook() is hook
    assert all(getattr(tt, name) is not None for name in tt.__all__)
