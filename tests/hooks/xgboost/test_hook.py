"""What the XGBoost hook saves, compared with what XGBoost itself says of the same model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

xgb = pytest.importorskip("xgboost")
from scipy.sparse import csr_matrix  # noqa: E402
from sklearn.datasets import load_iris  # noqa: E402

import tensortrial.hooks.xgboost as tt  # noqa: E402
from support.boosting import PARAMETERS, cancer, frame, halves  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402
from tensortrial.hooks.xgboost.importance import IMPORTANCE_TYPES  # noqa: E402

Make = Callable[..., tt.Hook]


def train(hook: Any, rounds: int = 4, parameters: Any = None, **options: Any) -> Any:
    training, validation = cancer()
    evals = options.pop("evals", [(training, "train"), (validation, "validation")])
    merged = {**PARAMETERS, **(parameters or {})}
    return xgb.train(
        {name: value for name, value in merged.items() if value is not None},
        options.pop("data", training),
        rounds,
        evals=evals,
        callbacks=[*options.pop("before", []), hook],
        verbose_eval=False,
        **options,
    )


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]


def importances(trial: Any, step: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {kind: {} for kind in IMPORTANCE_TYPES}
    for name in trial.tensor_names(collection="feature_importance", step=step):
        _, kind, feature = name.split("/", 2)
        found[kind][feature] = trial.tensor(name).value(step).tolist()
    return found


@pytest.mark.parametrize("make", ["create_from_json_file", "hook_from_config"])
def test_a_hook_is_made_from_a_json_configuration(tmp_path: Path, make: str) -> None:
    """Data are set afterwards. Older scripts use the second name."""
    path, (training, validation) = tmp_path / "hook.json", cancer()
    path.write_text(json.dumps({"LocalPath": str(tmp_path / "run"), "HookParameters": {"save_interval": "2"}}))
    hook = getattr(tt.Hook, make)(str(path))
    hook.train_data, hook.validation_data = training, validation
    train(hook)
    assert closed(hook).tensor("validation-logloss").steps() == [0, 2]


# The collections.


def test_all_evaluated_metrics_are_saved(make_hook: Make, out: str) -> None:
    log: dict[str, Any] = {}
    train(make_hook(), parameters={"eval_metric": ["logloss", "auc", "error@0.3"]}, evals_result=log)
    trial = create_trial(out)
    names = [f"{data}-{metric}" for data in ("train", "validation") for metric in ("auc", "error@0.3", "logloss")]
    assert trial.tensor_names(collection="metrics") == trial.tensor_names() == names
    for name in names:
        data, metric = name.split("-")
        assert [float(value) for value in trial.tensor(name).values().values()] == log[data][metric]
    # A larger AUC is a better one.
    assert trial.tensor_names(collection="losses") == [name for name in names if "auc" not in name]


def test_importances_equal_get_score(make_hook: Make, out: str) -> None:
    booster = train(make_hook(include_collections=["feature_importance"]), 6)
    trial = create_trial(out)
    for step in (0, 2, 5):
        expected = {kind: booster[: step + 1].get_score(importance_type=kind) for kind in IMPORTANCE_TYPES}
        assert importances(trial, step) == expected
    assert 0 < len(expected["gain"]) < booster.num_features()


def test_only_due_importances_are_computed(make_hook: Make, out: str) -> None:
    booster = train(make_hook(include_regex="feature_importance/gain/worst"), 2)
    found = importances(create_trial(out), 1)
    expected = {k: v for k, v in booster.get_score(importance_type="gain").items() if k.startswith("worst")}
    assert found == {**{kind: {} for kind in IMPORTANCE_TYPES}, "gain": expected}


def test_predictions_and_labels_are_of_the_validation_data(make_hook: Make, out: str) -> None:
    _, validation = cancer()
    booster = train(make_hook(include_collections=["predictions", "labels"], validation_data=validation))
    trial = create_trial(out)
    for step in range(4):
        expected = booster.predict(validation, iteration_range=(0, step + 1))
        np.testing.assert_array_equal(trial.tensor("predictions").value(step), expected)
        np.testing.assert_array_equal(trial.labels(step)[0], validation.get_label())
    assert len(trial.predictions(3)) == 1


def test_shap_values_are_saved_for_each_feature(make_hook: Make, out: str) -> None:
    training, _ = cancer()
    collections = ["average_shap", "full_shap"]
    booster = train(make_hook(include_collections=collections, train_data=training, save_config={"save_interval": 3}))
    trial = create_trial(out)
    assert trial.steps() == [0, 3]
    for step in (0, 3):
        expected = booster.predict(training, pred_contribs=True, iteration_range=(0, step + 1))
        np.testing.assert_allclose(trial.tensor("full_shap").value(step), expected, atol=1e-6)
        for i, feature in enumerate(training.feature_names):
            column = trial.tensor(f"full_shap/{feature}").value(step)
            np.testing.assert_array_equal(column, trial.tensor("full_shap").value(step)[:, i])
            average = trial.tensor(f"average_shap/{feature}").value(step)
            np.testing.assert_allclose(average, np.abs(expected[:, i]).mean(), rtol=1e-4, atol=1e-7)
    # The bias is in the matrix only: a feature may be called so.
    assert len(trial.tensor_names(collection="average_shap")) == len(training.feature_names)


def test_trees_are_those_of_the_round(make_hook: Make, out: str) -> None:
    booster = train(make_hook(include_collections=["trees"]), parameters={"num_parallel_tree": 2, "subsample": 0.7})
    trial, rows = create_trial(out), booster.trees_to_dataframe()
    for step in range(4):
        expected = rows[rows.Tree // 2 == step]
        for column in ("Tree", "Node"):
            found = trial.tensor(f"trees/{column}").value(step)
            assert found.dtype == np.int64
            assert found.tolist() == expected[column].tolist()
        for column in ("Split", "Gain", "Cover"):
            found = trial.tensor(f"trees/{column}").value(step)
            assert found.dtype == np.float64
            np.testing.assert_allclose(found, expected[column].astype(float), rtol=1e-5)
        for column in ("ID", "Feature", "Yes", "No", "Missing"):
            found = trial.tensor(f"trees/{column}").value(step)
            assert found.dtype.kind == "U"
            assert found.tolist() == expected[column].astype(str).tolist()


def test_pruned_nodes_are_skipped(make_hook: Make, out: str) -> None:
    parameters = {"tree_method": "exact", "gamma": 3, "max_depth": 6}
    rows = train(make_hook(include_collections=["trees"]), 1, parameters).trees_to_dataframe()
    trial = create_trial(out)
    assert trial.tensor("trees/Node").value(0).tolist() == rows.Node.tolist()
    assert rows.Node.max() > len(rows)
    np.testing.assert_allclose(trial.tensor("trees/Gain").value(0), rows.Gain, rtol=1e-5)


def test_categories_of_splits_are_saved(make_hook: Make, out: str) -> None:
    color = np.arange(60) % 3
    data = xgb.DMatrix(
        np.column_stack([color, np.zeros(60)]), color == 1, feature_types=["c", "q"], enable_categorical=True
    )
    parameters = {"max_cat_to_onehot": 1, "min_child_weight": 0}
    booster = train(make_hook(include_collections=["trees"]), 1, parameters, data=data, evals=[(data, "train")])
    expected = booster.trees_to_dataframe().Category[0]
    trial = create_trial(out)
    assert trial.tensor("trees/Category").value(0)[0] == ",".join(map(str, expected))
    assert np.isnan(trial.tensor("trees/Split").value(0)[0])


def test_hyperparameters_are_saved_as_passed(make_hook: Make, out: str) -> None:
    passed = {"objective": "binary:logistic", "eta": 0.5, "max_depth": 3, "eval_metric": ["auc", "logloss"], "x": None}
    train(make_hook(include_collections=["hyperparameters"], hyperparameters=passed), 1)
    trial = create_trial(out)
    found = {name.partition("/")[2]: trial.tensor(name).value(0) for name in trial.tensor_names(regex="^hyper")}
    assert {name: value.tolist() for name, value in found.items()} == {**passed, "x": "None"}
    assert (found["eta"].dtype, found["max_depth"].dtype) == (np.float64, np.int64)
    assert found["objective"].dtype == np.dtype("<U15")


def test_hyperparameters_are_the_boosters_by_default(make_hook: Make, out: str) -> None:
    schedule = xgb.callback.LearningRateScheduler([0.5, 0.25])
    train(make_hook(include_collections=["hyperparameters"]), 2, before=[schedule])
    trial = create_trial(out)
    assert trial.tensor("hyperparameters/max_depth").value(0) == 3
    assert trial.tensor("hyperparameters/objective").value(0) == "binary:logistic"
    assert [float(each) for each in trial.tensor("hyperparameters/learning_rate").values().values()] == [0.5, 0.25]


# Models.


def test_a_model_of_several_classes_is_saved(make_hook: Make, out: str) -> None:
    x, y = load_iris(return_X_y=True)
    data = xgb.DMatrix(x, y)
    parameters = {"objective": "multi:softprob", "num_class": 3, "eval_metric": "mlogloss"}
    hook = make_hook(save_all=True, train_data=data, validation_data=data)
    booster = train(hook, 2, parameters, data=data, evals=[(data, "train")])
    trial = create_trial(out)
    shap = booster.predict(data, pred_contribs=True)
    assert trial.tensor("full_shap").value(1).shape == shap.shape == (150, 3, 5)
    np.testing.assert_allclose(trial.tensor("full_shap/f2").value(1), shap[..., 2], atol=1e-6)
    np.testing.assert_allclose(trial.tensor("average_shap/f2").value(1), np.abs(shap[..., 2]).mean(0), rtol=1e-4)
    np.testing.assert_array_equal(trial.tensor("predictions").value(1), booster.predict(data))
    assert set(trial.tensor("trees/Tree").value(1)) == {3, 4, 5}
    assert importances(trial, 1)["gain"] == booster.get_score(importance_type="gain")
    assert trial.tensor_names(collection="losses") == ["train-mlogloss"]


def test_a_dart_model_is_saved(make_hook: Make, out: str) -> None:
    training, validation = cancer()
    hook = make_hook(save_all=True, train_data=training, validation_data=validation)
    booster = train(hook, 4, {"booster": "dart", "rate_drop": 0.5, "one_drop": 1})
    trial = create_trial(out)
    np.testing.assert_array_equal(trial.tensor("predictions").value(3), booster.predict(validation))
    assert importances(trial, 3)["total_gain"] == booster.get_score(importance_type="total_gain")
    rows = booster.trees_to_dataframe()
    assert trial.tensor("trees/ID").value(3).tolist() == rows[rows.Tree == 3].ID.tolist()
    # Each round drops trees of the others: the whole of a later model is not the sum of its beginnings.
    expected = booster.predict(training, pred_contribs=True)
    np.testing.assert_allclose(trial.tensor("full_shap").value(3), expected, atol=1e-5)


def test_a_linear_model_is_saved(make_hook: Make, out: str, lenient: None, caplog: pytest.LogCaptureFixture) -> None:
    training, validation = cancer()
    hook = make_hook(save_all=True, train_data=training, validation_data=validation)
    booster = train(hook, 3, {"booster": "gblinear", "updater": "coord_descent", "max_depth": None})
    trial = create_trial(out)
    assert importances(trial, 2)["weight"] == booster.get_score(importance_type="weight")
    np.testing.assert_array_equal(trial.tensor("full_shap").value(2), booster.predict(training, pred_contribs=True))
    assert not trial.tensor_names(collection="trees")
    said = messages(caplog)
    assert ["only the feature importance `weight` is saved" in each for each in said] == [True, False]
    assert "it is linear" in said[1]


def test_trees_with_several_values_in_a_leaf_have_no_shap_values(
    make_hook: Make, out: str, lenient: None, caplog: pytest.LogCaptureFixture
) -> None:
    x, _ = load_iris(return_X_y=True)
    data = xgb.DMatrix(x[:, :2], x[:, 2:])
    hook = make_hook(save_all=True, train_data=data, validation_data=data)
    parameters = {"objective": "reg:squarederror", "multi_strategy": "multi_output_tree", "tree_method": "hist"}
    booster = train(hook, 2, parameters, data=data, evals=[(data, "train")])
    trial = create_trial(out)
    np.testing.assert_array_equal(trial.tensor("predictions").value(1), booster.predict(data))
    assert trial.labels(1)[0].shape == (150, 2)
    assert not trial.has_tensor("full_shap")
    said = messages(caplog)
    assert len(said) == 2
    assert "'full_shap' is not saved: XGBoost cannot predict train_data" in said[0]
    assert "multi_output_tree" in said[1]
    assert "Stack" not in "".join(said)


# Data.


def test_data_of_all_types_are_accepted(make_hook: Make, tmp_path: Any) -> None:
    (x, y), (held_x, held_y) = halves(*frame())
    matrix = xgb.DMatrix(held_x, held_y)
    for name, data in {
        "DMatrix": matrix,
        "QuantileDMatrix": xgb.QuantileDMatrix(held_x, held_y, ref=xgb.DMatrix(x, y)),
        "numpy": (held_x.to_numpy(), held_y.to_numpy()),
        "pandas": (held_x, held_y),
        "csr": (csr_matrix(held_x), held_y),
    }.items():
        out = str(tmp_path / name)
        hook = make_hook(out_dir=out, save_all=True, train_data=data, validation_data=data)
        booster = train(hook, 2)
        trial = create_trial(out)
        np.testing.assert_array_equal(trial.labels(1)[0], matrix.get_label())
        # A sparse matrix has other missing values.
        same = hook.validation_data if name in ("QuantileDMatrix", "csr") else matrix
        np.testing.assert_allclose(trial.tensor("predictions").value(1), booster.predict(same), rtol=1e-6)
        shap = booster.predict(same, pred_contribs=True)
        np.testing.assert_allclose(trial.tensor("full_shap").value(1), shap, rtol=1e-5, atol=1e-6)
        assert trial.tensor("full_shap/worst area").shape(1) == (len(held_y),)


def test_training_on_quantiles_is_saved(make_hook: Make, out: str) -> None:
    x, y = frame()
    data = xgb.QuantileDMatrix(x, y)
    booster = train(
        make_hook(save_all=True, train_data=data, validation_data=data), 2, data=data, evals=[(data, "train")]
    )
    np.testing.assert_allclose(create_trial(out).tensor("predictions").value(1), booster.predict(data), rtol=1e-6)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (("file.csv", "csv"), "got the text 'file.csv'; to use a file, load it first"),
        ("file.csv", "got the text 'file.csv'"),
        (object(), "train_data must be a DMatrix, an array, .* got object"),
        (np.array([["a"]]), "train_data must be"),
        ((np.ones((3, 2)), np.ones(2)), "train_data must be"),
    ],
    ids=["files", "file", "object", "strings", "labels"],
)
def test_data_of_other_types_are_refused(out: str, data: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        tt.Hook(out, train_data=data)


def test_a_dmatrix_in_a_pair_is_refused(out: str) -> None:
    training, _ = cancer()
    with pytest.raises(ConfigurationError, match="has its own labels"):
        tt.Hook(out, validation_data=(training, training.get_label()))
    with pytest.raises(ConfigurationError, match="hyperparameters must be"):
        tt.Hook(out, hyperparameters=3)


def test_columns_that_do_not_match_the_model_are_skipped(
    make_hook: Make, out: str, lenient: None, caplog: pytest.LogCaptureFixture
) -> None:
    (x, _), _ = halves(*frame())
    renamed = x.rename(columns={"worst area": "area"})
    hook = make_hook(save_all=True, train_data=renamed, validation_data=x.to_numpy()[:, :5])
    train(hook, 3)
    trial = create_trial(out)
    assert trial.steps() == [0, 1, 2]
    assert not {"full_shap", "predictions", "labels"} & set(trial.tensor_names())
    said = messages(caplog)
    assert len(said) == 3
    assert "validation_data has 5 columns, but the model has 30 features" in said[0]
    assert "validation_data has no labels; pass a DMatrix with labels, or a pair" in said[1]
    assert "is 'area', but feature 23 of the model is 'worst area'" in said[2]
    hook.close()
    assert json.loads(Path(out, "end", "worker_0.json").read_text())["failure"] is None


def test_missing_data_are_one_warning(make_hook: Make, out: str, caplog: pytest.LogCaptureFixture) -> None:
    train(make_hook(save_all=True), 3, evals=[])
    said = messages(caplog)
    assert len(said) == 3
    assert "no metrics are saved, because there is no evaluation set" in said[0]
    assert "no predictions and labels are saved, because the hook has no validation_data" in said[1]
    assert "no SHAP values are saved, because the hook has no train_data" in said[2]
    caplog.clear()
    quiet = make_hook(out_dir=f"{out}-2")
    quiet.get_collection("metrics").save_config.end_step = 0
    train(quiet, 2, evals=[])
    assert messages(caplog) == []


def test_names_with_slashes_and_unicode_are_saved(make_hook: Make, out: str) -> None:
    x, y = frame()
    names = ["größe/µm", "面积/worst", "bias", "a b", *(f"c{i}" for i in range(26))]
    data = xgb.DMatrix(x.to_numpy(), y, feature_names=names)
    booster = train(make_hook(save_all=True, train_data=data), 8, data=data, evals=[(data, "völlig")])
    trial = create_trial(out)
    assert trial.has_tensor("völlig-logloss")
    assert importances(trial, 7)["gain"] == booster.get_score(importance_type="gain")
    shap = booster.predict(data, pred_contribs=True)
    for i, name in enumerate(names[:4]):
        np.testing.assert_allclose(trial.tensor(f"full_shap/{name}").value(7), shap[:, i], atol=1e-5)
    assert set(trial.tensor("trees/Feature").value(7)) <= {*names, "Leaf"}


@pytest.mark.parametrize("booster", ["gbtree", "dart"])
def test_a_model_whose_trees_are_updated_is_saved(
    make_hook: Make, out: str, lenient: None, caplog: pytest.LogCaptureFixture, booster: str
) -> None:
    training, validation = cancer()
    parameters = {"booster": booster, "num_parallel_tree": 2, "subsample": 0.7}
    trained = xgb.train({**PARAMETERS, **parameters}, training, 3)
    hook = make_hook(save_all=True, train_data=validation, validation_data=validation)
    updating = {**parameters, "process_type": "update", "updater": "refresh", "verbosity": 0}
    updated = train(hook, 3, updating, data=validation, xgb_model=trained)
    trial, rows = create_trial(out), updated.trees_to_dataframe()
    assert trial.steps() == [0, 1, 2]
    for step in range(3):
        expected = rows[rows.Tree // 2 == step]
        assert trial.tensor("trees/ID").value(step).tolist() == expected.ID.tolist()
        np.testing.assert_allclose(trial.tensor("trees/Gain").value(step), expected.Gain, rtol=1e-5)
        np.testing.assert_allclose(trial.tensor("trees/Cover").value(step), expected.Cover, rtol=1e-5)
    np.testing.assert_array_equal(trial.tensor("predictions").value(2), updated.predict(validation))
    assert messages(caplog) == []


def test_a_round_has_no_order_of_execution(make_hook: Make, out: str) -> None:
    train(make_hook())
    assert create_trial(out).sql('select distinct "order" from tensors').fetchall() == [(None,)]


def test_rounds_inside_a_begun_step_are_one_step(make_hook: Make) -> None:
    hook = make_hook()
    for step in (10, 20):
        hook.begin_step(step)
        train(hook, 2)
        hook.end_step()
    train(hook, 2)  # outside of the steps that the caller numbers
    trial = closed(hook)
    assert trial.steps() == trial.tensor("train-logloss").steps() == [10, 20]
