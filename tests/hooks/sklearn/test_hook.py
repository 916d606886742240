"""What the scikit-learn hook saves of estimators: loops of partial_fit, boosting, MLPs and pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

sklearn = pytest.importorskip("sklearn")
from sklearn.base import BaseEstimator  # noqa: E402
from sklearn.cluster import MiniBatchKMeans  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from sklearn.ensemble import AdaBoostClassifier, GradientBoostingRegressor, HistGradientBoostingClassifier  # noqa: E402
from sklearn.linear_model import LogisticRegression, SGDClassifier  # noqa: E402
from sklearn.metrics import log_loss, mean_absolute_error, mean_squared_error  # noqa: E402
from sklearn.neural_network import MLPClassifier  # noqa: E402
from sklearn.pipeline import Pipeline, make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.tree import DecisionTreeClassifier  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from tensortrial import SaveConfig, create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402

X, Y = load_digits(return_X_y=True)
X = X[:400] / 16
Y = Y[:400]


def test_a_loop_of_partial_fit_saves_the_coefficients_of_each_step(make_hook: Any) -> None:
    model, hook, seen = SGDClassifier(random_state=0), make_hook(), []
    for epoch in range(4):
        model.partial_fit(X, Y, classes=np.arange(10))
        hook.save_model(model, step=epoch)
        hook.log({"accuracy": model.score(X, Y)}, step=epoch)
        seen.append(model.coef_.copy())
    trial = closed(hook)
    for epoch in range(4):
        np.testing.assert_array_equal(trial.tensor("coef_").value(epoch), seen[epoch])
    assert (seen[0] != seen[3]).any()
    assert trial.tensor_names(collection="weights") == ["coef_"]
    assert trial.tensor_names(collection="biases") == ["intercept_"]
    assert set(trial.tensor_names()) == {"coef_", "intercept_", "accuracy"}
    assert trial.info.framework == "sklearn"


def test_layers_and_the_loss_of_an_mlp_are_saved(make_hook: Any) -> None:
    model, hook = MLPClassifier((8,), random_state=0), make_hook(save_config=SaveConfig(save_interval=2))
    for _ in range(5):
        model.partial_fit(X, Y, classes=np.arange(10))
        hook.save_model(model)
    trial = closed(hook)
    assert trial.tensor_names(collection="weights") == ["coefs_/0", "coefs_/1"]
    assert trial.tensor_names(collection="biases") == ["intercepts_/0", "intercepts_/1"]
    assert trial.tensor("loss_").steps() == [0, 2, 4]
    assert trial.tensor("loss_").value(4) == model.loss_
    np.testing.assert_array_equal(trial.tensor("coefs_/1").value(4), model.coefs_[1])


def test_the_iterations_of_fit_are_steps(make_hook: Any) -> None:
    model = MLPClassifier((8,), random_state=0, early_stopping=True, max_iter=300, n_iter_no_change=2).fit(X, Y)
    hook = make_hook()
    hook.save_stages(model)
    trial = closed(hook)
    assert [trial.tensor("loss_curve_").value(step) for step in trial.steps()] == model.loss_curve_
    assert len(trial.tensor("validation_scores_").steps()) == len(model.validation_scores_)
    assert "loss_curve_" in trial.tensor_names(collection="losses")


def test_the_stages_of_boosting_are_steps(make_hook: Any) -> None:
    model = GradientBoostingRegressor(n_estimators=6, subsample=0.5, random_state=0).fit(X[::2], Y[::2])
    hook = make_hook()
    hook.save_stages(model, {"held-out": (X[1::2], Y[1::2])})
    hook.save_stages(model, {"held-out": (X[1::2], Y[1::2])}, loss=mean_absolute_error)
    hook.save_model(model, step=5)
    trial = closed(hook)
    predictions = list(model.staged_predict(X[1::2]))
    for name, loss in (
        ("held-out-mean_squared_error", mean_squared_error),
        ("held-out-mean_absolute_error", mean_absolute_error),
    ):
        assert [trial.tensor(name).value(step) for step in range(6)] == [loss(Y[1::2], each) for each in predictions]
    assert [trial.tensor("train_score_").value(step) for step in range(6)] == model.train_score_.tolist()
    assert "train_score_" in trial.tensor_names(collection="losses")
    assert len(trial.tensor("oob_improvement_").steps()) == 6
    np.testing.assert_array_equal(trial.tensor("feature_importances_").value(5), model.feature_importances_)
    assert trial.tensor_names(collection="feature_importance") == ["feature_importances_"]


def test_the_losses_of_classifiers_are_those_of_their_probabilities(make_hook: Any, out: str) -> None:
    ada = AdaBoostClassifier(n_estimators=3, random_state=0).fit(X, Y)
    hist = HistGradientBoostingClassifier(max_iter=3, early_stopping=True, random_state=0, max_depth=2).fit(X, Y)
    for name, model in (("ada", ada), ("hist", hist)):
        hook = make_hook(f"{out}-{name}")
        hook.save_stages(model, {"train": (X, Y)})
        hook.close()
        trial = create_trial(f"{out}-{name}")
        expected = [log_loss(Y, each) for each in model.staged_predict_proba(X)]
        assert [trial.tensor("train-log_loss").value(step) for step in range(len(expected))] == expected
    # HistGradientBoosting keeps a score from before the first stage as well.
    for name, scores in (("train_score_", hist.train_score_), ("validation_score_", hist.validation_score_)):
        saved = trial.tensor(name).values()
        assert list(saved) == trial.tensor("train-log_loss").steps()
        assert list(saved.values()) == scores[1:].tolist()
    assert trial.tensor_names(collection="losses") == ["train-log_loss"]  # those that it keeps itself are scores


def test_boosting_that_stops_early_has_the_stages_that_it_trained(make_hook: Any) -> None:
    model = AdaBoostClassifier(DecisionTreeClassifier(), n_estimators=5, random_state=0).fit(X, Y)
    assert len(model.estimators_) == 1 < len(model.estimator_errors_)
    hook = make_hook()
    hook.save_stages(model, {"train": (X, Y)})
    trial = closed(hook)
    assert set(trial.tensor_names()) == {"estimator_errors_", "estimator_weights_", "train-log_loss"}
    assert trial.steps() == [0]


def test_a_warm_start_continues_its_steps(make_hook: Any, out: str) -> None:
    model = GradientBoostingRegressor(n_estimators=3, warm_start=True, random_state=0).fit(X, Y)
    hook = make_hook()
    hook.save_stages(model)
    hook.close()
    model.set_params(n_estimators=5).fit(X, Y)
    hook = make_hook(resume=True)
    hook.save_stages(model)
    hook.close()
    assert [create_trial(out).tensor("train_score_").value(step) for step in range(5)] == model.train_score_.tolist()


@pytest.mark.parametrize("nothing", ["passthrough", None])
def test_a_step_of_a_pipeline_without_an_estimator_has_no_tensors(make_hook: Any, nothing: Any) -> None:
    pipeline = Pipeline([("scaler", nothing), ("model", SGDClassifier(random_state=0))]).fit(X, Y)
    hook = make_hook()
    hook.save_model(pipeline)
    trial = closed(hook)
    assert trial.tensor_names(collection="weights") == ["model/coef_"]
    np.testing.assert_array_equal(trial.tensor("model/coef_").value(0), pipeline.named_steps["model"].coef_)


def test_a_pipeline_and_several_models_have_names_of_their_own(make_hook: Any) -> None:
    pipeline = make_pipeline(StandardScaler(), SGDClassifier(random_state=0)).fit(X, Y)
    clusters = MiniBatchKMeans(3, random_state=0, n_init=1).partial_fit(X)
    hook = make_hook(save_all=True)
    hook.save_model(pipeline, name="a")
    hook.save_model(clusters, name="b")
    hook.save_model(pipeline.steps[1][1].sparsify(), name="sparse")
    hook.save_model(clusters, name="b")
    trial = closed(hook)
    names = {"a/standardscaler/mean_", "a/sgdclassifier/coef_", "b/cluster_centers_", "sparse/coef_"}
    assert names <= set(trial.tensor_names())
    assert "a/sgdclassifier/coef_" in trial.tensor_names(collection="weights")
    assert trial.tensor("b/inertia_").steps() == [0, 1]
    np.testing.assert_array_equal(trial.tensor("sparse/coef_").value(0), trial.tensor("a/sgdclassifier/coef_").value(0))


@pytest.mark.parametrize("method", ["save_model", "save_stages"])
def test_wrong_arguments_are_refused_and_the_hook_stays_on(make_hook: Any, method: str) -> None:
    hook = make_hook()
    for model, message in ((3, "takes an estimator"), (SGDClassifier(), "is not fitted"), (None, "takes an estimator")):
        with pytest.raises(ConfigurationError, match=message):
            getattr(hook, method)(model)
    fitted = SGDClassifier(random_state=0).fit(X, Y)
    for evaluations, message in (
        ({"a": X}, "pairs"),
        ((X, Y), "must be a mapping"),
        ({"a": (X, Y)}, "no staged_predict"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            hook.save_stages(fitted, evaluations)
    assert hook.recorder.active


class Own(BaseEstimator):  # type: ignore[misc]
    """An estimator whose parameter has the name of a pipeline's attribute."""

    def __init__(self, steps: Any = (1, 2)) -> None:
        self.steps = steps

    def fit(self, x: Any, y: Any) -> Own:
        self.coef_ = np.ones(3)
        return self


class Unreadable(Own):
    @property
    def feature_importances_(self) -> Any:
        raise RuntimeError("no importances")


@pytest.mark.parametrize("steps", [[1, 2], ["ab"], [("a", 3)]])
def test_an_estimator_of_the_users_own_may_have_steps(make_hook: Any, steps: Any) -> None:
    hook = make_hook()
    hook.save_model(Own(steps).fit(X, Y))
    assert closed(hook).tensor_names() == ["coef_"]


def test_an_ensemble_of_estimators_without_importances_is_saved(make_hook: Any) -> None:
    hook = make_hook(save_all=True)
    hook.save_model(AdaBoostClassifier(LogisticRegression(), n_estimators=2).fit(X, Y))
    assert "classes_" in closed(hook).tensor_names()


@pytest.mark.usefixtures("lenient")
def test_a_model_and_a_loss_that_raise_errors_are_left_out(make_hook: Any, caplog: pytest.LogCaptureFixture) -> None:
    hook, model = make_hook(), GradientBoostingRegressor(n_estimators=2).fit(X, Y)
    hook.save_model(Unreadable().fit(X, Y))
    hook.save_stages(model, {"held": (X[:, :2], Y), "all": (X, Y)})
    messages = [each.getMessage() for each in caplog.records]
    assert len(messages) == 2
    assert "Unreadable cannot be read: no importances" in messages[0]
    assert "'held-mean_squared_error' is not saved: it cannot be computed: X has 2 features" in messages[1]
    assert closed(hook).tensor("all-mean_squared_error").steps() == [0, 1]
