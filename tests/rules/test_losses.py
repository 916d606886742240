"""The built-in rules on losses, on runs whose values are known."""

from __future__ import annotations

import math
import pickle
import sys

import pytest

from support.rule_runs import LOSSES, Write, fired, losses
from support.runs import EVAL, GLOBAL, TRAIN
from tensortrial import rules
from tensortrial.errors import InvalidRuleParameter
from tensortrial.mode import ModeKeys
from tensortrial.rules import invoke_rule


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


def test_loss_not_decreasing_evaluates_validation_losses_between_training_steps(write: Write) -> None:
    trained, validated = [1.0 / (1 + step) for step in range(12)], [1.0] * 12
    values = [loss for pair in zip(trained, validated, strict=True) for loss in pair]
    trial = write(losses([*values, 0.01]), [*[TRAIN, EVAL] * 12, TRAIN], **LOSSES)
    assert fired(invoke_rule(rules.LossNotDecreasing(trial))) == [21]


def test_loss_not_decreasing_counts_the_steps_of_a_mode_among_those_of_others(write: Write) -> None:
    modes = [TRAIN] * 7 + [GLOBAL, EVAL, GLOBAL] * 6
    trial = write(losses([1.0] * len(modes)), modes, **LOSSES)
    found = invoke_rule(rules.LossNotDecreasing(trial, mode=GLOBAL, num_steps=5))
    assert [each.sentence.partition(" since ")[2].partition(",")[0] for each in found] == ["step 7", "step 15"]
    assert fired(found) == [15, 22]


def test_steps_between_two_losses_are_not_visited(write: Write) -> None:
    def calls(steps: int) -> int:
        trial = write(losses([1 / (step + 1) for step in range(steps)]), name=str(steps), **LOSSES)
        rule = rules.LossNotDecreasing(trial, num_steps=steps // 2)
        visited = 0

        def count(*_: object) -> None:
            nonlocal visited
            visited += 1

        sys.setprofile(count)
        try:
            assert invoke_rule(rule) == []
        finally:
            sys.setprofile(None)
        return visited

    # In proportion to the steps; to their square, it would be 16 times as many.
    assert calls(800) < 6 * calls(200)


def test_loss_not_decreasing_says_how(write: Write) -> None:
    trial = write(losses([1.0, 1.2, 1.2, 1.1994, math.nan]), **LOSSES)
    found = invoke_rule(rules.LossNotDecreasing(trial, num_steps=1))
    assert [each.sentence.partition(":")[0] for each in found] == [
        "loss rose by 20 % since step 0, above 5 %",
        "loss fell by 0 % since step 1, not by more than 0.1 %",
        "loss fell by 0.05 % since step 2, not by more than 0.1 %",
        "loss is nan after 1.199 since step 3",
    ]
    # A rise has a positive sign, as in the sentence.
    assert [round(each.observed or 0, 6) for each in found[:-1]] == [20, 0, -0.05]
    assert [each.threshold for each in found] == [5, -0.1, -0.1, None]


def test_a_loss_that_becomes_nan_after_zero_does_not_decrease(write: Write) -> None:
    (finding,) = invoke_rule(rules.LossNotDecreasing(write(losses([0.0, math.nan]), **LOSSES), num_steps=1))
    assert finding.sentence == "loss is nan after 0 since step 0"
    assert invoke_rule(rules.LossNotDecreasing(write(losses([math.inf, 1.0]), name="inf", **LOSSES), num_steps=1)) == []


def test_loss_not_decreasing_needs_selected_tensors(write: Write) -> None:
    trial = write(losses([3.0, 2.0, 2.0], "my"))
    with pytest.raises(InvalidRuleParameter, match="use_losses_collection"):
        rules.LossNotDecreasing(trial, use_losses_collection="false")
    found = invoke_rule(rules.LossNotDecreasing(trial, use_losses_collection="false", tensor_regex="my", num_steps=1))
    assert fired(found) == [2]


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


def test_overfit_does_not_compare_an_evaluation_with_the_training_after_it(write: Write) -> None:
    steps, modes = losses([9.0, 9.0, 1.0, 1.0, 1.05]), [EVAL, EVAL, TRAIN, TRAIN, EVAL]
    trial = write(steps, modes, **LOSSES)
    for found in (invoke_rule(rules.Overfit(trial)), [*rules.watch(trial, [rules.Overfit(trial)], record=False)]):
        assert found == []
    trial = write(losses([1.0, 1.0, 9.0, 9.0, 1.0, 1.05]), [TRAIN, TRAIN, *modes[1:2], *modes[1:]], "later", **LOSSES)
    assert invoke_rule(rules.Overfit(trial, start_step=3)) == []


@pytest.mark.parametrize(
    ("training", "validation"),
    [("loss", "val_loss"), ("train_loss", "val_loss"), ("train/loss", "eval/loss"), ("loss_train", "loss_test_0")],
)
def test_overfit_compares_losses_whose_names_differ_by_the_data(write: Write, training: str, validation: str) -> None:
    steps = [*losses([1.0, 0.5], training), *losses([0.75], validation), *losses([0.5], training)]
    trial = write(steps, [TRAIN, TRAIN, EVAL, TRAIN], **LOSSES)
    assert invoke_rule(rules.Overfit(trial)) == []
    (finding,) = invoke_rule(
        rules.Overfit(write([*steps, {validation: 1.0}], [TRAIN, TRAIN, EVAL, TRAIN, EVAL], "more", **LOSSES))
    )
    assert (finding.step, finding.tensor, finding.observed) == (4, validation, 1.0)


@pytest.mark.parametrize("mode", [TRAIN, GLOBAL])
def test_overfit_compares_an_evaluation_that_a_training_step_logs(write: Write, mode: ModeKeys) -> None:
    logged = [{"loss": 1.0}, {"loss": 0.5, "eval_loss": 0.75}, {"eval_loss": 9.0}, {"loss": 0.5}, {"eval_loss": 1.0}]
    trial = write(logged, [mode] * len(logged), **LOSSES)
    for found in (invoke_rule(rules.Overfit(trial)), [*rules.watch(trial, [rules.Overfit(trial)], record=False)]):
        assert [(each.step, each.tensor, each.observed) for each in found] == [(4, "eval_loss", 1.0)]
    assert invoke_rule(rules.Overfit(trial, patience=2)) == []


def test_overfit_takes_as_much_memory_after_many_losses_without_an_evaluation(write: Write) -> None:
    rule, sizes = rules.Overfit(write(losses(1 / (1 + step) for step in range(90)), **LOSSES)), []
    for steps in (range(30), range(30, 90)):
        assert not any(map(rule.evaluate, steps))
        sizes.append(len(pickle.dumps(rule)))
    assert sizes[1] - sizes[0] < 100


def test_overfit_compares_each_training_loss_once(write: Write) -> None:
    trial = write(
        [{"loss": 1.0, "aux_loss": 1.0}, {"loss": 2.0, "val_loss": 3.0, "val_other": 3.0}], [TRAIN, EVAL], **LOSSES
    )
    assert [finding.tensor for finding in invoke_rule(rules.Overfit(trial))] == ["loss"]


@pytest.mark.parametrize(
    ("training", "validation"), [([0.0], [math.nan]), ([1.0], [math.inf, -math.inf]), ([0.0], [0.0])]
)
def test_overfit_does_not_fire_if_there_is_no_ratio(
    write: Write, training: list[float], validation: list[float]
) -> None:
    trial = write(losses(training + validation), [TRAIN] * len(training) + [EVAL] * len(validation), **LOSSES)
    assert invoke_rule(rules.Overfit(trial)) == []


def test_overfit_fires_if_the_training_loss_is_zero(write: Write) -> None:
    assert fired(invoke_rule(rules.Overfit(write(losses([0.0, 0.5]), [TRAIN, EVAL], **LOSSES)))) == [1]


def test_overfit_fires_if_the_training_step_after_an_evaluation_saves_no_loss(write: Write) -> None:
    trial = write([*losses([1.0, 2.0]), {"weight": 1.0}, *losses([1.0])], [TRAIN, EVAL, TRAIN, TRAIN], **LOSSES)
    only_loss = rules.Overfit(trial, tensor_regex="loss")
    assert fired(invoke_rule(only_loss)) == fired([*rules.watch(trial, [only_loss], record=False)]) == [1]


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


def test_overtraining_in_either_mode(write: Write) -> None:
    trial = write(losses([1.0, 0.9, 0.895, 0.9, 0.899, 0.8]), [TRAIN] * 6, **LOSSES)
    assert fired(invoke_rule(rules.Overtraining(trial, patience_train=3))) == [4]
    assert invoke_rule(rules.Overtraining(trial, patience_train=3, delta=0.001)) == []
    steps = losses([1.0] + [0.5] * 11)
    evaluated = write(steps, [TRAIN] + [EVAL] * 11, name="evaluated", **LOSSES)
    assert fired(invoke_rule(rules.Overtraining(evaluated))) == [11]


def test_overtraining_says_that_a_loss_was_never_finite(write: Write) -> None:
    trial = write(losses([math.nan, math.inf, 1.0, 1.0]), [TRAIN] * 4, **LOSSES)
    sentences = [finding.sentence for finding in invoke_rule(rules.Overtraining(trial, patience_train=2))]
    assert sentences == ["loss has been nan or inf for 2 training steps"]
    (finding,) = invoke_rule(rules.Overtraining(trial, patience_train=1), start_step=2)
    assert finding.sentence == "loss has not fallen by more than 0.01 below 1 for 1 training step"


def test_loss_spike(write: Write) -> None:
    values = [1.0 + 0.01 * (i % 3) for i in range(30)]
    values[20] = 5.0
    trial = write(losses(values), **LOSSES)
    (finding,) = invoke_rule(rules.LossSpike(trial))
    assert finding.step == 20
    assert finding.sentence.startswith("loss jumped to 5 from 1.01")


def test_a_loss_that_rose_a_little_is_said_to_have_risen(write: Write) -> None:
    trial = write(losses([1.0] + [1.01] * 10), **LOSSES)
    (finding,) = invoke_rule(rules.LossNotDecreasing(trial))
    assert finding.sentence == "loss rose by 1 % since step 0, instead of falling by more than 0.1 %: 1 to 1.01"


@pytest.mark.parametrize(("last", "percent"), [(10.994, "999"), (10.997, "1,000"), (9_999.99, "999,899")])
def test_a_number_that_is_rounded_to_a_thousand_is_said_in_digits(write: Write, last: float, percent: str) -> None:
    trial = write(losses([1.0] + [last] * 10), **LOSSES)
    (finding,) = invoke_rule(rules.LossNotDecreasing(trial))
    assert finding.sentence.startswith(f"loss rose by {percent} % since step 0")


def test_thousands_of_deviations_are_said_in_digits(write: Write) -> None:
    trial = write(losses([1.0 + 0.01 * (i % 3) for i in range(20)] + [11.0]), **LOSSES)
    (finding,) = invoke_rule(rules.LossSpike(trial))
    assert finding.sentence == "loss jumped to 11 from 1.01, 1,210 deviations above"


def test_a_loss_that_becomes_nan_is_said_without_deviations(write: Write) -> None:
    trial = write(losses([1.0 + 0.01 * (i % 3) for i in range(20)] + [math.nan]), **LOSSES)
    (finding,) = invoke_rule(rules.LossSpike(trial))
    assert finding.sentence.startswith("loss jumped to nan from 1.01")
    assert "deviations" not in finding.sentence
