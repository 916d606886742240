"""The built-in rules on runs whose values are known: the vectors of their documentation, and the edges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, GLOBAL, TRAIN, Job
from tensortrial import rules
from tensortrial.errors import ConfigurationError, InsufficientInformationForRuleInvocation, InvalidRuleParameter
from tensortrial.mode import ModeKeys
from tensortrial.rules import Finding, invoke_rule

Write = Callable[..., tensortrial.Trial]
RNG = np.random.default_rng(0)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a run of given steps, a dictionary each (None: a step that saves nothing), and opens it."""

    def write(
        steps: Iterable[Mapping[str, Any] | None],
        modes: Iterable[ModeKeys] | None = None,
        name: str = "run",
        **plan: Any,
    ) -> tensortrial.Trial:
        with Job(tmp_path / name) as job:
            for values, mode in zip(steps, modes or iter(lambda: GLOBAL, None), strict=False):
                if values is None:
                    job.skip(mode)
                else:
                    job.step(values, mode, **plan)
        return tensortrial.create_trial(tmp_path / name)

    return write


def fired(findings: list[Finding]) -> list[int | None]:
    return [finding.step for finding in findings]


def losses(values: Iterable[float | None], name: str = "loss") -> list[dict[str, float] | None]:
    return [None if value is None else {name: value} for value in values]


LOSSES = {"collections": ("losses",)}
GRADIENTS = {"collections": ("gradients",)}

# 1


@pytest.mark.parametrize("plan", [{}, {"raw": False, "statistics": ("abs_mean",)}])
def test_vanishing_gradient_looks_at_all_gradients(write: Write, plan: dict[str, Any]) -> None:
    healthy, gone = np.full(4, 1e-3), np.full(4, -1e-9)
    trial = write([{"a": healthy, "b": healthy}, {"a": healthy, "b": gone}], **GRADIENTS, **plan)
    (finding,) = invoke_rule(rules.VanishingGradient(trial))
    assert (finding.step, finding.tensor, finding.threshold) == (1, "b", 1e-7)
    assert finding.observed == pytest.approx(1e-9)
    assert finding.sentence == "b is 1e-09 on average, below 1e-07"
    assert invoke_rule(rules.VanishingGradient(trial, threshold="1e-10")) == []


# 2


@pytest.mark.parametrize(
    "plan", [{}, {"raw": False, "statistics": ("nan_count", "inf_count")}, {"raw": False, "statistics": ("l2",)}]
)
def test_exploding_tensor(write: Write, plan: dict[str, Any]) -> None:
    good = np.ones(3)
    trial = write([{"a": good}, {"a": good * math.inf}, {"a": good * math.nan}, {"b": np.empty(0)}], **plan)
    assert fired(invoke_rule(rules.ExplodingTensor(trial))) == [1, 2]
    assert fired(invoke_rule(rules.ExplodingTensor(trial, only_nan="True"))) == [2]
    assert invoke_rule(rules.ExplodingTensor(trial, tensor_regex="b")) == []


# 3


def test_dead_relu_counts_units_over_the_batch(write: Write) -> None:
    # Of 4 units, the first is active for 1 % of 200 examples, the others for none.
    value = np.zeros((200, 4), np.float32)
    value[:2, 0] = 1
    alive = np.zeros((200, 4), np.float32)
    alive[:2, :2] = 1  # half of the units: not more than 50 %
    trial = write([{"relu1_output_0": value}, {"relu1_output_0": alive}])
    (finding,) = invoke_rule(rules.DeadRelu(trial))
    assert (finding.step, finding.observed) == (0, 75.0)
    assert invoke_rule(rules.DeadRelu(trial, threshold_layer=75)) == []


@pytest.mark.parametrize(
    "name",
    ["my_relu_output", "features.relu_output_0", "ReLU_output_0", "re_lu_1/outputs", "dense/Relu:0", "relu0_output_0"],
)
def test_dead_relu_finds_the_names_of_every_framework(write: Write, name: str) -> None:
    assert fired(invoke_rule(rules.DeadRelu(write([{name: np.zeros((8, 4))}])))) == [0]


# 4


def initial(variances: Iterable[float], spread: float = 1.0) -> dict[str, Any]:
    inputs = {
        f"relu{i}_input_0": ({"collections": ("x",)}, RNG.normal(0, math.sqrt(variance), 1000))
        for i, variance in enumerate(variances)
    }
    return {**inputs, "g": ({"collections": ("gradients",)}, RNG.normal(0, spread, 100))}


def test_poor_initialization_by_the_variances_of_layers(write: Write) -> None:
    trial = write([initial([1, 2]), initial([1, 20]), initial([1, 2])])
    (finding,) = invoke_rule(rules.PoorWeightInitialization(trial))
    assert (finding.step, finding.tensor) == (1, "relu1_input_0")
    assert "times the variance of relu0_input_0" in finding.sentence


def test_poor_initialization_by_the_range_of_gradients(write: Write) -> None:
    (finding,) = invoke_rule(rules.PoorWeightInitialization(write([initial([1, 2], 1e-4)])))
    assert finding.tensor == "g"
    assert finding.sentence.startswith("g has its central 90 % within 0.000")


def test_poor_initialization_takes_percentiles_from_a_histogram(write: Write) -> None:
    gradient = RNG.normal(0, 1e-4, 1000)
    trial = write([{"g": gradient}], raw=False, histogram=True, **GRADIENTS)
    (finding,) = invoke_rule(rules.PoorWeightInitialization(trial))
    assert finding.observed == pytest.approx(float(np.subtract(*np.percentile(gradient, (95, 5)))), rel=0.1)


def test_poor_initialization_by_a_loss_that_does_not_fall(write: Write) -> None:
    trial = write(losses([2.0, 1.9, 1.95, 1.9, 1.95, 2.0, 1.9, 1.8]), **LOSSES)
    (finding,) = invoke_rule(rules.PoorWeightInitialization(trial))
    assert finding.step == 6
    assert finding.sentence == "loss has not fallen below 1.9 for 5 steps"
    assert invoke_rule(rules.PoorWeightInitialization(trial, steps=6)) == []


# 5


def test_saturated_activation_has_a_range_for_each_function(write: Write) -> None:
    trial = write([{"tanh_input_0": np.full((4, 2), 12.0), "sigmoid_input_0": np.full((4, 2), 12.0)}])
    (finding,) = invoke_rule(rules.SaturatedActivation(trial))
    assert (finding.tensor, finding.observed) == ("tanh_input_0", 100.0)
    found = invoke_rule(
        rules.SaturatedActivation(trial, threshold_sigmoid_max=10, tensor_regex="sigmoid", threshold_layer="99")
    )
    assert [f.tensor for f in found] == ["sigmoid_input_0"]


def test_saturated_activation_is_content_with_statistics_inside_the_range(write: Write) -> None:
    plan = {"raw": False, "statistics": ("min", "max")}
    assert invoke_rule(rules.SaturatedActivation(write([{"tanh_input_0": np.ones((4, 2))}], **plan))) == []
    beyond = write([{"tanh_input_0": np.full((4, 2), 99.0)}], name="beyond", **plan)
    with pytest.raises(InsufficientInformationForRuleInvocation, match="save_raw_tensor=True"):
        invoke_rule(rules.SaturatedActivation(beyond))


# 6


def test_tensor_variance(write: Write) -> None:
    trial = write([{"a": np.array([-s, s])} for s in (0.1, 1.0, 10.0)], raw=False, statistics=("variance",))
    assert fired(invoke_rule(rules.TensorVariance(trial, tensor_regex="a", max_threshold=50))) == [2]
    assert fired(invoke_rule(rules.TensorVariance(trial, tensor_regex="a", min_threshold="0.5"))) == [0]
    assert fired(invoke_rule(rules.TensorVariance(trial, tensor_regex="a", min_threshold=0.5, max_threshold=50))) == [
        0,
        2,
    ]
    with pytest.raises(InvalidRuleParameter, match="min_threshold"):
        rules.TensorVariance(trial, tensor_regex="a")


# 7


def test_weight_update_ratio(write: Write) -> None:
    values = [1.0, 1.1, 1.1, 30.0]
    trial = write([{"w": np.full(4, value)} for value in values], collections=("weights",))
    found = invoke_rule(rules.WeightUpdateRatio(trial))
    assert fired(found) == [2, 3]
    assert found[0].observed == 0.0
    assert found[1].observed == pytest.approx(28.9 / 1.1)
    assert fired(invoke_rule(rules.WeightUpdateRatio(trial, num_steps=2))) == [3]


def test_weight_update_ratio_keeps_to_training_steps(write: Write) -> None:
    modes = [TRAIN, EVAL, EVAL, TRAIN]
    trial = write([{"w": np.full(4, value)} for value in (1.0, 1.0, 1.0, 1.1)], modes, collections=("weights",))
    assert invoke_rule(rules.WeightUpdateRatio(trial)) == []


# 8


@pytest.mark.parametrize("plan", [{}, {"raw": False, "statistics": ("zero_count",)}])
def test_all_zero(write: Write, plan: dict[str, Any]) -> None:
    trial = write([{"a": np.array([0, 0, 0, 1.0])}, {"a": np.zeros((2, 2))}], **plan)
    assert fired(invoke_rule(rules.AllZero(trial, tensor_regex="a"))) == [1]
    assert fired(invoke_rule(rules.AllZero(trial, tensor_regex="a", threshold="75"))) == [0, 1]


# 9


def test_unchanged_tensor_vector(write: Write) -> None:
    ones = {"ones": np.ones((2, 2))}
    trial = write([ones, ones, ones, None, None, {"another": np.ones((2, 2))}])
    rule = rules.UnchangedTensor(trial, tensor_regex=".*")
    assert invoke_rule(rule, 0, 2) == []
    assert fired(invoke_rule(rule, 2, 3)) == [2]
    assert invoke_rule(rule, 3, 6) == []


def test_unchanged_tensor_by_tolerances(write: Write) -> None:
    trial = write([{"a": np.array([1.0, math.nan]), "b": np.array([1 + step * 1e-3, 1.0])} for step in range(3)])
    assert invoke_rule(rules.UnchangedTensor(trial, tensor_regex="[ab]")) == []
    assert [f.tensor for f in invoke_rule(rules.UnchangedTensor(trial, tensor_regex="[ab]", equal_nan=1))] == ["a"]
    assert [f.tensor for f in invoke_rule(rules.UnchangedTensor(trial, tensor_regex="[ab]", rtol=1e-2))] == ["b"]


def test_unchanged_tensor_sees_a_change_in_statistics_alone(write: Write) -> None:
    plan = {"raw": False, "statistics": ("min", "max", "mean")}
    changing = write([{"a": np.arange(3.0) * (1 + step)} for step in range(4)], **plan)
    assert invoke_rule(rules.UnchangedTensor(changing, tensor_regex="a")) == []
    constant = write([{"a": np.arange(3.0)} for _ in range(4)], name="constant", **plan)
    with pytest.raises(InsufficientInformationForRuleInvocation, match="no raw value was saved"):
        invoke_rule(rules.UnchangedTensor(constant, tensor_regex="a"))


def test_weights_may_be_the_same_all_through_an_evaluation(write: Write) -> None:
    trial = write([{"w": np.ones(2)}] * 4, [EVAL] * 4, collections=("weights",))
    assert invoke_rule(rules.UnchangedTensor(trial, collection_names="weights")) == []


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, np.int64, bool, "U3"])
def test_unchanged_tensor_of_any_dtype(write: Write, kind: Any) -> None:
    trial = write([{"a": np.array([1, 0]).astype(kind)}] * 3)
    assert fired(invoke_rule(rules.UnchangedTensor(trial, tensor_regex="a"))) == [2]


# 10


def test_loss_not_decreasing_vector(write: Write) -> None:
    values: list[float | None] = [None] * 17
    for step, loss in zip((0, 4, 8, 12, 16), (0.30, 0.33, 0.31, 0.30, 0.28), strict=True):
        values[step] = loss
    found = invoke_rule(rules.LossNotDecreasing(write(losses(values), **LOSSES), diff_percent=0))
    assert fired(found) == [12]
    assert found[0].sentence == "loss fell by 0 % since step 0, not by more than 0 %: 0.3 to 0.3"


def test_loss_not_decreasing_is_evaluated_every_so_many_steps(write: Write) -> None:
    trial = write(losses(1.0 if step % 3 == 0 else None for step in range(40)), **LOSSES)
    found = invoke_rule(rules.LossNotDecreasing(trial, num_steps=10), start_step=21)
    assert fired(found) == [21, 33]
    assert "since step 9" in found[0].sentence


def test_loss_not_decreasing_prefers_evaluation(write: Write) -> None:
    steps = losses([1.0] * 20) + losses([float(20 - i) for i in range(20)])
    trial = write(steps, [TRAIN] * 20 + [EVAL] * 20, **LOSSES)
    assert invoke_rule(rules.LossNotDecreasing(trial)) == []
    assert fired(invoke_rule(rules.LossNotDecreasing(trial, mode="train"))) == [10]


def test_loss_not_decreasing_says_how(write: Write) -> None:
    trial = write(losses([1.0, 1.2, math.nan]), **LOSSES)
    sentences = [f.sentence for f in invoke_rule(rules.LossNotDecreasing(trial, num_steps=1))]
    assert sentences[0] == "loss rose by 20 % since step 0, above 5 %: 1 to 1.2"
    assert sentences[1] == "loss is nan after 1.2 since step 1"


def test_loss_not_decreasing_needs_something_to_look_at(write: Write) -> None:
    trial = write(losses([3.0, 2.0, 2.0], "my"))
    with pytest.raises(InvalidRuleParameter, match="use_losses_collection"):
        rules.LossNotDecreasing(trial, use_losses_collection="false")
    found = invoke_rule(rules.LossNotDecreasing(trial, use_losses_collection="false", tensor_regex="my", num_steps=1))
    assert fired(found) == [2]


# 11


def test_overfit_compares_the_means_since_the_last_evaluation(write: Write) -> None:
    trainings, validations = ([1.0, 0.8], [0.5, 0.3], [0.2, 0.2]), ([1.0, 0.8], [0.42, 0.46], [0.6, 0.6])
    steps, modes = [], []
    for training, validation in zip(trainings, validations, strict=True):
        steps += losses([*training, *validation])
        modes += [TRAIN, TRAIN, EVAL, EVAL]
    trial = write(steps, modes, **LOSSES)
    found = invoke_rule(rules.Overfit(trial))
    assert [(f.step, round(f.observed or 0, 6)) for f in found] == [(11, 2.0)]
    assert fired(invoke_rule(rules.Overfit(trial, ratio_threshold=0.05))) == [7, 11]
    assert fired(invoke_rule(rules.Overfit(trial, ratio_threshold=0.05, patience="2"))) == [11]
    assert invoke_rule(rules.Overfit(trial, start_step=12)) == []


def test_overfit_compares_the_losses_of_two_data_sets_at_one_step(write: Write) -> None:
    names = ("train-rmse", "test-rmse", "fresh-rmse", "train-mae", "other")
    values = ([1.0, 1.05, 1.0, 1.0, 9.0], [0.5, 0.6, 0.5, 9.0, 9.0], [0.4, 0.6, 0.8, 0.4, 9.0])
    trial = write([dict(zip(names, each, strict=True)) for each in values], **LOSSES)
    found = invoke_rule(rules.Overfit(trial))
    assert [(f.step, f.tensor, round(f.observed or 0, 6)) for f in found] == [
        (1, "test-rmse", 0.2),
        (2, "fresh-rmse", 1.0),
        (2, "test-rmse", 0.5),
    ]
    assert [(f.step, f.tensor) for f in invoke_rule(rules.Overfit(trial, patience=2))] == [(2, "test-rmse")]
    found = invoke_rule(rules.Overfit(trial, training_regex="^test-", ratio_threshold=0.3))
    assert [(f.step, f.tensor) for f in found] == [(2, "fresh-rmse")]


# 12


def test_overtraining_in_either_mode(write: Write) -> None:
    trial = write(losses([1.0, 0.9, 0.895, 0.9, 0.899, 0.8]), [TRAIN] * 6, **LOSSES)
    assert fired(invoke_rule(rules.Overtraining(trial, patience_train=3))) == [4]
    assert invoke_rule(rules.Overtraining(trial, patience_train=3, delta=0.001)) == []
    steps = losses([1.0] + [0.5] * 11)
    evaluated = write(steps, [TRAIN] + [EVAL] * 11, name="evaluated", **LOSSES)
    assert fired(invoke_rule(rules.Overtraining(evaluated))) == [11]


# 13


def test_class_imbalance_vector(write: Write) -> None:
    labels = np.repeat([0, 1], [990, 10])
    (finding,) = invoke_rule(rules.ClassImbalance(write([{"labels": labels}])))
    assert (finding.step, finding.observed, finding.threshold) == (0, 99.0, 10.0)


def test_class_imbalance_accumulates_and_is_silent_below_its_samples(write: Write) -> None:
    step = {"labels": np.repeat([0, 1], [99, 1])}
    assert fired(invoke_rule(rules.ClassImbalance(write([step] * 6)))) == [4, 5]


def test_a_mispredicted_class(write: Write) -> None:
    labels = np.arange(600) % 3
    scores = np.eye(3)[np.where(labels == 2, 0, labels)]
    trial = write([{"labels": labels, "predictions": scores}])
    (finding,) = invoke_rule(rules.ClassImbalance(trial, argmax="True"))
    assert finding.sentence == "labels class 2 is mispredicted in 100.0%, above 70.0%"
    assert invoke_rule(rules.ClassImbalance(trial, argmax=True, threshold_misprediction=1)) == []


# 14


def test_confusion_vector(write: Write) -> None:
    labels = np.arange(10)
    wrong = np.where(labels == 4, 7, labels)
    trial = write([{"labels": labels, "predictions": labels}, {"labels": labels, "predictions": wrong}])
    assert [(f.step, f.observed) for f in invoke_rule(rules.Confusion(trial))] == [(1, 0.0), (1, 1.0)]
    (finding,) = invoke_rule(rules.Confusion(trial, min_diag=0, max_off_diag=0.01))
    assert finding.sentence == "labels class 4 is predicted as 7 in 100.0%, above 1.0%"


def test_confusion_by_collection_scores_and_one_hot_labels(write: Write) -> None:
    labels = np.arange(10) % 5  # the other five classes have no examples
    values = {
        "a": ({"collections": ("labels",)}, np.eye(10)[labels]),
        "b": ({"collections": ("predictions",)}, np.eye(10)[labels] + 0.1),
    }
    assert invoke_rule(rules.Confusion(write([values]), category_no="10")) == []


# 15


def test_similar_across_runs(write: Write) -> None:
    base = write([{"a": np.ones(3), "b": np.ones(2)}, {"a": np.ones(3)}, {"a": np.ones(3), "c": np.ones(1)}])
    other = write(
        [{"a": np.ones(3), "b": np.ones(2)}, {"a": np.full(3, 1.1)}, {"a": np.ones((3, 1))}, {}], name="other"
    )
    found = invoke_rule(rules.SimilarAcrossRuns(base, other))
    assert [(f.step, f.tensor) for f in found] == [(1, "a"), (2, "c"), (2, "a")]
    assert found[0].observed == pytest.approx(0.1)
    assert "c is in this run only" in found[1].sentence
    assert fired(invoke_rule(rules.SimilarAcrossRuns(base, other_trials=[other], tensor_regex="c"))) == [2]
    assert len(rules.SimilarAcrossRuns(base, other_trials=other.path).other_trials) == 1
    with pytest.raises(InvalidRuleParameter, match="exactly one other run"):
        rules.SimilarAcrossRuns(base)


def test_similar_across_runs_by_statistics(write: Write) -> None:
    plan = {"raw": False, "statistics": ("mean", "l2")}
    base = write([{"a": np.ones(3)}, {"a": np.ones(3)}], **plan)
    other = write([{"a": np.ones(3)}, {"a": np.full(3, 2.0)}], name="other", **plan)
    (finding,) = invoke_rule(rules.SimilarAcrossRuns(base, other))
    assert finding.sentence == "a differs from the other run: its mean is 1 here and 2 there"


# 17


def test_check_input_images(write: Write) -> None:
    images = np.zeros((300, 3, 4, 4), np.float32)
    images[:, 1] = 0.5
    trial = write([{"Net_input_0": images, "conv1_input_0": images + 9}] * 2)
    (finding,) = invoke_rule(rules.CheckInputImages(trial))
    assert (finding.step, finding.observed) == (1, 0.5)
    assert "channel 1 has mean 0.5 over 600 images" in finding.sentence
    assert invoke_rule(rules.CheckInputImages(trial, threshold_mean=0.6)) == []
    assert invoke_rule(rules.CheckInputImages(trial, threshold_samples=601)) == []
    with pytest.raises(InvalidRuleParameter, match="axes 0 to 3"):
        invoke_rule(rules.CheckInputImages(trial, channel=4))


def test_check_input_images_of_one_channel_by_their_mean(write: Write) -> None:
    trial = write([{"Net_input_0": np.ones((600, 1, 2, 2))}], raw=False, statistics=("mean",))
    assert fired(invoke_rule(rules.CheckInputImages(trial))) == [0]


# 18


def test_nlp_sequence_ratio(write: Write) -> None:
    tokens = np.array([[5, 1, 0, 0], [6, 0, 0, 0]])
    trial = write([{"embedding_input_0": tokens}])
    (finding,) = invoke_rule(rules.NLPSequenceRatio(trial))
    assert finding.observed == 62.5
    both = invoke_rule(rules.NLPSequenceRatio(trial, token_values="0,1", token_thresholds_percent="70,10"))
    assert [f.sentence for f in both] == ["embedding_input_0 is 12.5 % token 1, above 10 %"]
    assert invoke_rule(rules.NLPSequenceRatio(trial, token_thresholds_percent=70)) == []
    with pytest.raises(InvalidRuleParameter, match="one number for each of the 2 token_values"):
        rules.NLPSequenceRatio(trial, token_values=[0, 1])


def test_nlp_sequence_ratio_of_padding_by_zero_count(write: Write) -> None:
    trial = write([{"input_ids": np.zeros(4)}], raw=False, statistics=("zero_count",))
    assert fired(invoke_rule(rules.NLPSequenceRatio(trial))) == [0]
    with pytest.raises(InsufficientInformationForRuleInvocation, match="input_ids"):
        invoke_rule(rules.NLPSequenceRatio(trial, token_values="1"))


# 19, 20


def importances(values: Iterable[float]) -> dict[str, Any]:
    return {f"feature_importance/weight/f{i}": value for i, value in enumerate(values)}


def test_feature_importance_overweight(write: Write) -> None:
    trial = write(
        [importances([1.0] * 10), importances([9.0, 9.0, 9.0, 1.0, 1.0])], collections=("feature_importance",)
    )
    (finding,) = invoke_rule(rules.FeatureImportanceOverweight(trial))
    assert finding.step == 1
    assert finding.observed == pytest.approx(27 / 29)
    assert invoke_rule(rules.FeatureImportanceOverweight(trial, nfeatures=1)) == []


def test_tree_depth(write: Write) -> None:
    trees = [{"trees/Node": np.arange(n), "trees/Feature": np.array(["f0"] * n)} for n in (1, 32, 33)]
    trial = write(trees, collections=("trees",))
    (finding,) = invoke_rule(rules.TreeDepth(trial))
    assert (finding.step, finding.observed, finding.threshold) == (2, 5.0, 4.0)
    assert invoke_rule(rules.TreeDepth(trial, depth="5")) == []


# Beyond


def test_loss_spike(write: Write) -> None:
    values = [1.0 + 0.01 * (i % 3) for i in range(30)]
    values[20] = 5.0
    trial = write(losses(values), **LOSSES)
    (finding,) = invoke_rule(rules.LossSpike(trial))
    assert finding.step == 20
    assert finding.sentence.startswith("loss jumped to 5 from 1.01")


def test_gradient_norm_spike(write: Write) -> None:
    steps = [{"a": np.full(4, 0.1 + 0.01 * (i % 3)), "b": np.full(4, 0.1)} for i in range(30)]
    steps[20]["b"] = np.full(4, 9.0)
    trial = write(steps, raw=False, statistics=("l2",), **GRADIENTS)
    (finding,) = invoke_rule(rules.GradientNormSpike(trial))
    assert (finding.step, finding.tensor, finding.worker) == (20, "b", "worker_0")


def test_rank_divergence(tmp_path: Path) -> None:
    plan = {"raw": False, "statistics": ("l2",)}
    jobs = [Job(tmp_path / "run", f"worker_{rank}", 3) for rank in range(3)]
    for step in range(2):
        for rank, job in enumerate(jobs):
            weight = np.ones(4) * (1.1 if (rank, step) == (1, 1) else 1)
            gradient = np.ones(4) * (100 if (rank, step) == (2, 1) else 1 + rank)
            job.step({"w": ({**plan, "collections": ("weights",)}, weight), "g": ({**plan, **GRADIENTS}, gradient)})
    for job in jobs:
        job.close()
    found = invoke_rule(rules.RankDivergence(tensortrial.create_trial(tmp_path / "run")))
    assert [(f.step, f.tensor, f.worker) for f in found] == [(1, "w", "worker_1"), (1, "g", "worker_2")]


def test_low_precision_saturation(write: Write) -> None:
    top = float(np.finfo(np.float16).max)
    half = np.ones(1000, np.float16)
    saturated, flushed = half.copy(), half.copy()
    saturated[:5], flushed[:600] = top, 0
    fp8 = np.full(8, 448.0).astype(ml_dtypes.float8_e4m3fn)
    trial = write([{"a": half, "wide": np.zeros(3)}, {"a": saturated}, {"a": flushed}, {"b": fp8}])
    found = invoke_rule(rules.LowPrecisionSaturation(trial))
    assert [(f.step, f.tensor, f.observed) for f in found] == [(1, "a", 0.5), (2, "a", 60.0), (3, "b", 100.0)]


def test_dead_features(write: Write) -> None:
    def active(*units: int) -> dict[str, Any]:
        value = np.zeros((8, 10), np.float32)
        value[3, list(units)] = 1
        return {"relu_output_0": value}

    halves = [active(0, 1, 2, 3, 4), active(5, 6, 7, 8, 9)]
    assert invoke_rule(rules.DeadFeatures(write(halves * 5))) == []
    (finding,) = invoke_rule(rules.DeadFeatures(write([active(*range(8))] * 12, name="dead")))
    assert (finding.step, finding.observed) == (9, 20.0)


# What is not there


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (rules.VanishingGradient, r"include_collections=\['gradients'\]"),
        (rules.DeadRelu, r"include_regex="),
        (rules.WeightUpdateRatio, r"include_collections=\['weights'\]"),
        (rules.LossNotDecreasing, r"include_collections=\['losses'\]"),
        (rules.Confusion, r"include_collections=\['labels'\]"),
        (rules.ClassImbalance, r"include_regex=\['\.\*labels'\]"),
        (rules.TreeDepth, r"include_collections=\['trees'\]"),
        (rules.FeatureImportanceOverweight, "include_regex"),
        (rules.CheckInputImages, "include_regex"),
        (rules.NLPSequenceRatio, "include_regex"),
        (rules.Overfit, r"include_collections=\['losses'\]"),
        (rules.GradientNormSpike, r"include_collections=\['gradients'\]"),
        (rules.PoorWeightInitialization, r"include_collections=\['gradients', 'losses'\]"),
        (rules.RankDivergence, r"include_collections="),
    ],
)
def test_a_run_without_the_tensors_says_what_to_tell_the_hook(write: Write, make: Any, advice: str) -> None:
    trial = write([{"something": np.ones(3)}] * 3)
    with pytest.raises(InsufficientInformationForRuleInvocation, match=advice) as raised:
        invoke_rule(make(trial))
    assert raised.value.rule_name == make.__name__


@pytest.mark.parametrize(
    ("make", "collection", "advice"),
    [
        (rules.VanishingGradient, "gradients", r"ReductionConfig\(abs_reductions=\['mean'\]\)"),
        (rules.GradientNormSpike, "gradients", r"ReductionConfig\(norms=\['l2'\]\)"),
        (rules.WeightUpdateRatio, "weights", r"ReductionConfig\(save_raw_tensor=True\)"),
        (rules.ExplodingTensor, "gradients", r"ReductionConfig\(reductions=\['nan_count', 'inf_count'\]\)"),
    ],
)
def test_the_wrong_statistics_say_which_would_do(write: Write, make: Any, collection: str, advice: str) -> None:
    trial = write([{"a": np.ones(3)}] * 2, raw=False, statistics=("median",), collections=(collection,))
    with pytest.raises(InsufficientInformationForRuleInvocation, match=advice):
        invoke_rule(make(trial))


def test_a_rule_starts_anew_when_it_is_shown_the_steps_again(write: Write) -> None:
    trial = write([{"labels": np.repeat([0, 1], [99, 1])}] * 5)
    rule = rules.ClassImbalance(trial)
    assert fired(invoke_rule(rule)) == fired(invoke_rule(rule)) == [4]


def test_selectors_are_a_union(write: Write) -> None:
    values = {"a": ({"collections": ("mine",)}, np.zeros(2)), "b": np.zeros(2), "c": np.zeros(2)}
    trial = write([values])
    found = invoke_rule(rules.AllZero(trial, collection_names="mine, nothing", tensor_regex="^b$"))
    assert [f.tensor for f in found] == ["a", "b"]
    for make in (rules.AllZero, rules.UnchangedTensor):
        with pytest.raises(ConfigurationError, match="select tensors by"):
            make(trial)


def test_the_page_on_rules_is_made_from_them() -> None:
    from tensortrial.rules.documentation import page

    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page(text) == text, "run: python -m tensortrial.rules.documentation docs/rules.md"
