"""What the LightGBM hook saves of the jobs that people write: native, estimators and cross-validation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

lgb = pytest.importorskip("lightgbm")
datasets = pytest.importorskip("sklearn.datasets")
from support.made_hooks import closed  # noqa: E402
from tensortrial import create_trial  # noqa: E402

PARAMETERS = {
    "objective": "binary",
    "num_leaves": 7,
    "verbose": -1,
    "num_threads": 1,
    "metric": ["auc", "binary_logloss"],
}
ALL = ["feature_importance", "trees", "hyperparameters"]


def cancer() -> tuple[Any, Any]:
    return datasets.load_breast_cancer(return_X_y=True, as_frame=True)


def data_sets() -> tuple[Any, Any]:
    x, y = cancer()
    training = lgb.Dataset(x[::2], y[::2], free_raw_data=False)
    return training, training.create_valid(x[1::2], y[1::2])


def test_metrics_importances_trees_and_hyperparameters_are_saved(make_hook: Any) -> None:
    training, validation = data_sets()
    hook, history = make_hook(include_collections=ALL), {}
    booster = lgb.train(
        PARAMETERS,
        training,
        6,
        valid_sets=[training, validation],
        valid_names=["train", "validation"],
        feval=lambda predictions, data: ("mine", float(predictions.mean()), False),
        callbacks=[hook, lgb.record_evaluation(history)],
    )
    trial = closed(hook)
    names = [f"{data}-{metric}" for data in ("train", "validation") for metric in ("auc", "binary_logloss", "mine")]
    assert trial.tensor_names(collection="metrics") == names
    assert trial.tensor_names(collection="losses") == [name for name in names if not name.endswith("auc")]
    for name in names:
        data, _, metric = name.partition("-")
        assert [trial.tensor(name).value(step) for step in range(6)] == history[data][metric]
    features = booster.feature_name()
    for kind in ("gain", "split"):
        for step in (2, 5):
            found = [trial.tensor(f"feature_importance/{kind}/{feature}").value(step) for feature in features]
            # LightGBM adds up the gains in another order when it is asked afterwards.
            np.testing.assert_allclose(found, booster.feature_importance(kind, iteration=step + 1), rtol=1e-5)
    expected = booster.trees_to_dataframe()
    for column in ("tree_index", "node_index", "split_gain", "threshold", "value", "count"):
        saved = np.concatenate([trial.tensor(f"trees/{column}").value(step) for step in range(6)])
        if saved.dtype.kind == "U":
            assert saved.tolist() == expected[column].tolist()
        else:  # the model of the end has some numbers with six digits only
            np.testing.assert_allclose(saved, expected[column].to_numpy(saved.dtype), rtol=1e-5)
    feature = trial.tensor("trees/split_feature").value(0)
    assert feature.tolist() == [
        each if isinstance(each, str) else "nan" for each in expected[expected.tree_index == 0].split_feature
    ]
    assert trial.tensor("hyperparameters/num_leaves").value(0) == 7
    assert trial.tensor("hyperparameters/metric").value(0).tolist() == ["auc", "binary_logloss"]


@pytest.mark.parametrize("position", ["before", "after"])
def test_the_round_at_which_training_stops_early_is_saved(make_hook: Any, out: str, position: str) -> None:
    training, validation = data_sets()
    hook, stop = make_hook(), lgb.early_stopping(2, first_metric_only=True, verbose=False)
    callbacks = [hook, stop] if position == "before" else [stop, hook]
    booster = lgb.train(
        {**PARAMETERS, "learning_rate": 0.9}, training, 100, valid_sets=[validation], callbacks=callbacks
    )
    hook.close()
    assert booster.best_iteration < 98
    # Two rounds more than the best one were trained.
    assert create_trial(out).steps() == list(range(booster.best_iteration + 2))


def test_a_model_that_is_trained_on_continues_its_steps(make_hook: Any) -> None:
    training, validation = data_sets()
    arguments: dict[str, Any] = {"valid_sets": [validation], "valid_names": ["validation"]}
    booster = lgb.train(PARAMETERS, training, 3, **arguments)
    hook = make_hook(include_collections=["trees"])
    booster = lgb.train(PARAMETERS, training, 2, init_model=booster, callbacks=[hook], **arguments)
    lgb.train(PARAMETERS, training, 2, init_model=booster, callbacks=[hook], **arguments)
    trial = closed(hook)
    assert trial.steps() == [3, 4, 5, 6]
    assert set(trial.tensor("trees/tree_index").value(4)) == {4}


@pytest.mark.parametrize("rounds", [3, 6])
def test_a_run_that_goes_on_from_a_checkpoint_has_each_round_at_its_step(make_hook: Any, out: str, rounds: int) -> None:
    """The run has five rounds, the checkpoint fewer or more."""
    training, validation = data_sets()
    arguments: dict[str, Any] = {"valid_sets": [validation], "valid_names": ["validation"]}
    hook = make_hook()
    lgb.train(PARAMETERS, training, 5, callbacks=[hook], **arguments)
    hook.close()
    checkpoint = lgb.train(PARAMETERS, training, rounds)
    log: dict[str, Any] = {}
    hook = make_hook(resume=True)
    callbacks = [hook, lgb.record_evaluation(log)]
    lgb.train(PARAMETERS, training, 2, init_model=checkpoint, callbacks=callbacks, **arguments)
    hook.close()
    for name, values in log["validation"].items():
        metric = create_trial(out).tensor(f"validation-{name}")
        assert metric.steps() == [*range(min(rounds, 5)), rounds, rounds + 1]
        assert [float(metric.value(step)) for step in (rounds, rounds + 1)] == values


def test_a_callback_that_is_used_twice_continues_after_the_first_training(make_hook: Any) -> None:
    hook = make_hook()
    for _ in range(2):
        training, validation = data_sets()
        lgb.train(PARAMETERS, training, 3, valid_sets=[validation], callbacks=[hook])
    assert closed(hook).steps() == list(range(6))


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_an_estimator_of_several_classes_with_categories_and_missing_values(make_hook: Any) -> None:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 6, 600)
    frame = pandas.DataFrame({"kind": pandas.Categorical([f"k{each}" for each in kind]), "x": rng.normal(size=600)})
    frame.loc[::7, "x"] = np.nan
    labels = kind % 3
    hook = make_hook(include_collections=ALL)
    model = lgb.LGBMClassifier(n_estimators=4, num_leaves=4, verbose=-1, n_jobs=1, min_child_samples=5)
    model.fit(frame[::2], labels[::2], eval_set=[(frame[1::2], labels[1::2])], callbacks=[hook])
    trial = closed(hook)
    assert trial.tensor_names(collection="metrics") == ["valid_0-multi_logloss"]
    assert set(trial.tensor("trees/tree_index").value(3)) == {9, 10, 11}
    by_category = trial.tensor("trees/category").value(0) != "nan"
    assert by_category.any()
    assert np.isnan(trial.tensor("trees/threshold").value(0)[by_category]).all()
    importance = [trial.tensor(f"feature_importance/gain/{name}").value(3) for name in ("kind", "x")]
    np.testing.assert_allclose(importance, model.booster_.feature_importance("gain"), rtol=1e-5)


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_a_ranker_saves_the_metrics_of_its_evaluation_sets(make_hook: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    y = (x[:, 0] > 0).astype(int) + (x[:, 1] > 0)
    hook = make_hook()
    lgb.LGBMRanker(n_estimators=3, verbose=-1, n_jobs=1).fit(
        x, y, group=[20] * 10, eval_set=[(x.copy(), y.copy())], eval_group=[[20] * 10], eval_at=[3, 5], callbacks=[hook]
    )
    trial = closed(hook)
    assert trial.tensor_names(collection="metrics") == ["valid_0-ndcg@3", "valid_0-ndcg@5"]
    assert trial.tensor_names(collection="losses") == []


def test_a_cross_validation_saves_means_and_deviations(make_hook: Any, caplog: Any) -> None:
    x, y = cancer()
    hook = make_hook(include_collections=ALL)
    results = lgb.cv(PARAMETERS, lgb.Dataset(x, y), 3, nfold=3, callbacks=[hook], return_cvbooster=True)
    trial = closed(hook)
    for metric in ("auc", "binary_logloss"):
        for form, key in (("mean", "mean"), ("std", "stdv")):
            found = [trial.tensor(f"valid-{metric}-{form}").value(step) for step in range(3)]
            assert found == [float(value) for value in results[f"valid {metric}-{key}"]]
    assert trial.tensor_names(collection="losses") == ["valid-binary_logloss-mean"]
    gains = [booster.feature_importance("gain") for booster in results["cvbooster"].boosters]
    feature = x.columns[22].replace(" ", "_")
    assert trial.tensor(f"feature_importance/gain/{feature}").value(2) == np.mean(gains, axis=0)[22]
    assert [record.getMessage()[:34] for record in caplog.records] == ["no trees are saved of a cross-valid"[:34]]


def test_without_an_evaluation_set_a_warning_says_so_once(make_hook: Any, caplog: Any) -> None:
    training, _ = data_sets()
    lgb.train(PARAMETERS, training, 3, callbacks=[make_hook()])
    assert [record.getMessage()[:20] for record in caplog.records] == ["no metrics are saved"]
