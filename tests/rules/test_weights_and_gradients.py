"""The built-in rules on weights and gradients, on runs whose values are known."""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.rule_runs import GRADIENTS, LOSSES, Write, fired, losses
from support.runs import EVAL, TRAIN, Job, Step
from tensortrial import rules
from tensortrial.errors import InvalidRuleParameter
from tensortrial.rules import invoke_rule

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("plan", [{}, {"raw": False, "statistics": ("abs_mean",)}])
def test_vanishing_gradient_evaluates_all_gradients(write: Write, plan: dict[str, Any]) -> None:
    healthy, gone = np.full(4, 1e-3), np.full(4, -1e-9)
    trial = write([{"a": healthy, "b": healthy}, {"a": healthy, "b": gone}], **GRADIENTS, **plan)
    (finding,) = invoke_rule(rules.VanishingGradient(trial))
    assert (finding.step, finding.tensor, finding.threshold) == (1, "b", 1e-7)
    assert finding.observed == pytest.approx(1e-9)
    assert finding.sentence == "b is 1e-09 on average, below 1e-07"
    assert invoke_rule(rules.VanishingGradient(trial, threshold="1e-10")) == []


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


def test_poor_initialization_counts_the_losses_of_each_worker_by_themselves(tmp_path: Path) -> None:
    workers = [Job(tmp_path / "run", f"worker_{i}", 8) for i in range(8)]
    for loss in (1.0, 0.9, 0.8):
        for each, job in enumerate(workers):
            job.step({"loss": loss + each / 100}, **LOSSES)
    for job in workers:
        job.close()
    assert invoke_rule(rules.PoorWeightInitialization(tensortrial.create_trial(tmp_path / "run"))) == []


def test_poor_initialization_says_that_a_loss_was_never_finite(write: Write) -> None:
    trial = write(losses([math.nan, math.inf]), **LOSSES)
    (finding,) = invoke_rule(rules.PoorWeightInitialization(trial, patience=1))
    assert finding.sentence == "loss has been nan or inf for 2 steps"
    trial = write(losses([1.0, 1.0]), name="one", **LOSSES)
    (finding,) = invoke_rule(rules.PoorWeightInitialization(trial, patience=1))
    assert finding.sentence == "loss has not fallen below 1 for 1 step"


def test_poor_initialization_counts_a_step_once_that_workers_count_differently(tmp_path: Path) -> None:
    for worker in range(2):
        with Job(tmp_path, f"worker_{worker}", 2) as job:
            job.skip(EVAL if worker else TRAIN)
            for _ in range(10):
                job.step({"g": np.linspace(0, 1e-4, 9)}, TRAIN, **GRADIENTS)
    found = invoke_rule(rules.PoorWeightInitialization(tensortrial.create_trial(tmp_path), steps=4))
    assert {each.step for each in found} == {1, 2, 3, 4}


@pytest.mark.parametrize("value", [np.full(4, math.nan), np.ones(1), np.zeros(0)], ids=["nan", "one", "none"])
@pytest.mark.parametrize("plan", [{}, {"raw": False, "histogram": True}], ids=["raw", "histogram"])
def test_poor_initialization_needs_two_numbers_of_a_gradient(write: Write, value: Any, plan: dict[str, Any]) -> None:
    assert invoke_rule(rules.PoorWeightInitialization(write([{"g": value}], **GRADIENTS, **plan))) == []


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


def updated(run: Path, steps: int, rate: float = 0.1, moves_at: int = 10**9) -> tensortrial.Trial:
    """Save three weights: `a` is updated, `b` only has gradients until a step, `c` has none."""
    with Job(run) as job:
        for step in range(steps):
            moved = np.full(4, rate * step)
            at = job.begin(TRAIN)
            values = {"a": 1 + moved, "b": 2 + moved * (step >= moves_at), "c": np.full(4, 3.0)}
            job.put(at, values, raw=False, statistics=("l2", "mean"), collections=("weights",))
            job.put(at, {"gradient/a": np.ones(4), "gradient/b": np.ones(4)}, raw=False, **GRADIENTS)
            job.put(at, {"hyperparameters/SGD/group_0/lr": rate})
            job.put(at, {"update/a": np.full(4, rate)}, raw=False, collections=("updates",), closes=True)
    return tensortrial.create_trial(run)


def test_a_parameter_that_no_optimizer_updates_is_found_while_it_does_not_change(tmp_path: Path) -> None:
    found = invoke_rule(rules.UntrainedParameter(updated(tmp_path / "never", steps=12)))
    assert [(each.tensor, each.step) for each in found] == [("b", 9), ("b", 10), ("b", 11), ("c", 11)]
    assert found[0].sentence == "b has gradients, but no optimizer updated it at 10 saved steps"
    assert found[-1].sentence == "c had no gradient and did not change at 12 saved steps, while others had one"
    of_patience = rules.UntrainedParameter(updated(tmp_path / "later", steps=12, moves_at=8), patience="7")
    assert [(each.tensor, each.step) for each in invoke_rule(of_patience)] == [("b", 6), ("b", 7), ("c", 11)]


def test_steps_together_and_one_by_one_have_the_same_untrained_parameters(tmp_path: Path) -> None:
    trial = updated(tmp_path, steps=40, moves_at=20)
    rule = rules.UntrainedParameter(trial)
    one_by_one = [each.step for step in range(40) for each in rule.evaluate(step)]
    assert one_by_one == list(range(9, 20))
    assert one_by_one == [each.step for each in invoke_rule(rules.UntrainedParameter(trial)) if each.tensor == "b"]


def test_a_learning_rate_of_0_leaves_all_parameters_untrained(tmp_path: Path) -> None:
    found = invoke_rule(rules.UntrainedParameter(updated(tmp_path, steps=10, rate=0.0)))
    assert [each.tensor for each in found] == ["a", "b", "c"]
    assert found[0].sentence == "a has gradients, but the learning rate was 0 at 10 saved steps"


def test_gradient_norm_spike(write: Write) -> None:
    steps = [{"a": np.full(4, 0.1 + 0.01 * (i % 3)), "b": np.full(4, 0.1)} for i in range(30)]
    steps[20]["b"] = np.full(4, 9.0)
    trial = write(steps, raw=False, statistics=("l2",), **GRADIENTS)
    (finding,) = invoke_rule(rules.GradientNormSpike(trial))
    assert (finding.step, finding.tensor, finding.worker) == (20, "b", "worker_0")


@pytest.mark.parametrize(("factor", "fires_at"), [(1.0, []), (1e3, [60])], ids=["healthy", "a gradient that jumps"])
def test_a_gradient_that_grew_while_nothing_was_saved_is_no_spike(
    tmp_path: Path, factor: float, fires_at: list[int]
) -> None:
    rng = np.random.default_rng(0)
    with Job(tmp_path) as job:
        for step in [*range(11), *range(20, 101, 10), *range(150, 401, 50)]:
            size = min(max(1.0, (step / 10) ** 1.5), 4.0) * rng.uniform(0.9, 1.1) * (factor if step == 60 else 1.0)
            job.put(Step(TRAIN, step, step), {"g": np.full(4, size)}, closes=True, **GRADIENTS)
    found = invoke_rule(rules.GradientNormSpike(tensortrial.create_trial(tmp_path)))
    assert [finding.step for finding in found] == fires_at


def walks(leaves: Mapping[int, float], steps: int = 30) -> list[dict[str, Any]]:
    """Return the values of four weights that hardly move; some are multiplied at step 20."""
    values = [RNG.normal(0, 1, 64) for _ in range(4)]
    found = []
    for step in range(steps):
        values = [
            value * (leaves.get(number, 1.0) if step == 20 else 1.0) + RNG.normal(0, 1e-3, 64)
            for number, value in enumerate(values)
        ]
        found.append({f"w{number}": value for number, value in enumerate(values)})
    return found


@pytest.mark.parametrize("plan", [{}, {"raw": False, "statistics": ("l2",)}], ids=["values", "statistics"])
@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_tensor_that_leaves_its_past_alone_is_an_anomaly(write: Write, plan: dict[str, Any], factor: float) -> None:
    trial = write(walks({2: factor}), collections=("weights",), **plan)
    found = invoke_rule(rules.StatisticAnomaly(trial))
    assert {finding.tensor for finding in found} == {"w2"}
    assert found[0].step == 20
    assert abs(found[0].observed or 0) > 10
    assert found[0].sentence.startswith("w2 left its own past: its l2 is ")
    assert f"deviations {'above' if factor > 1 else 'below'} the usual " in found[0].sentence


def test_tensors_that_leave_their_past_together_are_no_anomaly(write: Write) -> None:
    trial = write(walks(dict.fromkeys(range(4), 2.0)), collections=("weights",))
    assert invoke_rule(rules.StatisticAnomaly(trial)) == []


@pytest.mark.parametrize(("factor", "leaves"), [(1.0, []), (20.0, ["w2"])], ids=["healthy", "a weight that jumps"])
def test_a_weight_that_moved_while_nothing_was_saved_is_no_anomaly(
    tmp_path: Path, factor: float, leaves: list[str]
) -> None:
    saved = [*range(11), *range(20, 101, 10), *range(150, 401, 50)]
    with Job(tmp_path) as job:
        for step in saved:
            sizes = 1.0, 1 + step / 100, factor if step >= 60 else 1.0, 1 + step**2 / 1000
            weights = {f"w{number}": np.full(4, size) for number, size in enumerate(sizes)}
            job.put(Step(TRAIN, step, step), weights, closes=True, collections=("weights",))
    found = invoke_rule(rules.StatisticAnomaly(tensortrial.create_trial(tmp_path)))
    assert list(dict.fromkeys(finding.tensor for finding in found)) == leaves
    assert [finding.step for finding in found[:1]] == [60] * len(leaves)


def test_the_past_of_a_tensor_takes_as_much_memory_after_many_steps(write: Write) -> None:
    trial = write(walks({2: 2.0}, steps=300), collections=("weights",), raw=False, statistics=("l2",))
    rule, sizes = rules.StatisticAnomaly(trial, window=32), []
    for steps in (range(100), range(100, 300)):
        for step in steps:
            rule.evaluate(step)
        sizes.append(len(pickle.dumps(rule)))
    assert sizes[1] - sizes[0] < 4 * 8 * 32
    assert fired(one_by_one := invoke_rule(rules.StatisticAnomaly(trial, window=32)))[0] == 20
    together = rules.watch(trial, [rules.StatisticAnomaly(trial, window=32)], record=False)
    assert [each.sentence for each in together] == [each.sentence for each in one_by_one]


def test_an_anomaly_needs_a_past_and_a_known_statistic(write: Write) -> None:
    trial = write(walks({2: 2.0}), collections=("weights",))
    assert invoke_rule(rules.StatisticAnomaly(trial, minimum=30)) == []
    assert invoke_rule(rules.StatisticAnomaly(trial, statistic="mean", tensor_regex="w0")) == []
    with pytest.raises(InvalidRuleParameter, match=r"one of min, max, .* is accepted"):
        rules.StatisticAnomaly(trial, statistic="l3")


def test_a_weight_that_begins_with_zeros_is_no_anomaly(write: Write) -> None:
    trial = write([{"w": np.full(4, 0.01 * step)} for step in range(60)], collections=("weights",))
    assert invoke_rule(rules.StatisticAnomaly(trial)) == []


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (lambda step: 1 / (step**2 + 1), "of one class"),
        (lambda step: 0.02 / (step**2 + 1), ""),  # a model that has learned them before
        (lambda step: 0.2 if step == 11 else 1 / (step**2 + 1), ""),  # a batch with an example of a rare class
        (lambda step: -1e4 / (step**2 + 1), ""),  # a NLLLoss of logits, to which no logarithm was applied
        (lambda step: math.nan, ""),
    ],
    ids=["one class", "learned before", "a rare class", "logits", "nan"],
)
def test_labels_are_of_one_class_if_all_losses_are_explained_by_one(tmp_path: Path, loss: Any, says: str) -> None:
    def distance(step: int) -> float | None:
        return None if step == 11 else -math.expm1(-max(loss(step), -1.0))

    found = of_bias(tmp_path, loss, distance)
    assert [says in each.sentence for each in found] == [True] * bool(says)


@pytest.mark.parametrize(("scale", "is_updated", "fires"), [(1, True, True), (4, True, False), (1, False, False)])
def test_a_gradient_that_grows_while_the_loss_falls_is_a_sum(
    tmp_path: Path, scale: int, is_updated: bool, fires: bool
) -> None:
    """A scaled one is too large at once. Without updates, the gradients of several batches are added on purpose."""
    found = of_bias(tmp_path, lambda step: 1 / (step + 1), lambda step: scale * 0.2 * (step + 1), is_updated)
    assert [each.step for each in found] == [3] * fires


def test_the_gradient_of_the_last_bias_takes_as_much_memory_after_many_steps(tmp_path: Path) -> None:
    of_bias(tmp_path, lambda step: 1 / (step + 1), lambda step: 0.02, steps=60)
    rule, sizes = rules.OutputBiasGradient(tensortrial.create_trial(tmp_path)), []
    for steps in (range(20), range(20, 60)):
        assert not any(map(rule.evaluate, steps))
        sizes.append(len(pickle.dumps(rule)))
    assert sizes[1] - sizes[0] < 100


def of_bias(run: Path, loss: Any, distance: Any, is_updated: bool = True, steps: int = 14) -> list[Any]:
    """Evaluate OutputBiasGradient. `loss` and `distance` are functions of the step; the latter may return None."""
    with Job(run, is_ordered=True) as job:
        for step in range(steps):
            values = {"0_output_0": np.ones((512, 3)), "NLLLoss_output_0": np.float64(loss(step))}
            if (size := distance(step)) is not None:
                values["gradient/0.bias"] = np.array([-size, size / 2, size / 2])
            job.step(values | ({"update/0.bias": 1.0} if is_updated else {}), TRAIN)
    return invoke_rule(rules.OutputBiasGradient(tensortrial.create_trial(run)))
