"""Parameters come as strings or as they are; names that are near are offered."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import Job
from tensortrial import rules
from tensortrial.errors import InvalidRuleParameter, UnknownRule
from tensortrial.mode import ModeKeys
from tensortrial.rules.registry import OURS, RULES, SAGEMAKER, make_rule, rule_class


@pytest.fixture
def trial(tmp_path: Path) -> tensortrial.Trial:
    with Job(tmp_path / "run") as job:
        job.step({"x": np.ones(1)})
    return tensortrial.create_trial(tmp_path / "run")


@pytest.mark.parametrize(
    ("passed", "value"), [("1e-6", 1e-6), (1, 1.0), (0.5, 0.5), (np.float64(2), 2.0), (None, 1e-7), (" 3 ", 3.0)]
)
def test_numbers_may_be_strings(trial: Any, passed: Any, value: float) -> None:
    assert rules.VanishingGradient(trial, threshold=passed).threshold == value


@pytest.mark.parametrize(
    ("rule", "parameter", "value", "accepted"),
    [
        ("VanishingGradient", "threshold", "small", "a number of at least 0"),
        ("VanishingGradient", "threshold", float("nan"), "a number"),
        ("VanishingGradient", "threshold", True, "a number"),
        ("VanishingGradient", "threshold", [1], "a number"),
        ("VanishingGradient", "threshold", "", "a number"),
        ("DeadRelu", "threshold_layer", 101, "a number from 0 to 100"),
        ("LossNotDecreasing", "num_steps", "2.5", "an integer of at least 1"),
        ("LossNotDecreasing", "num_steps", 2.5, "an integer"),
        ("LossNotDecreasing", "num_steps", 0, "an integer of at least 1"),
        ("LossNotDecreasing", "mode", "training", "one of TRAIN, EVAL, PREDICT, GLOBAL"),
        ("LossNotDecreasing", "use_losses_collection", "maybe", "true or false"),
        ("DeadRelu", "tensor_regex", "(", "a list of regular expressions"),
        ("DeadRelu", "tensor_regex", 7, "a list of regular expressions"),
        ("NLPSequenceRatio", "token_values", "0,x", "a list of numbers"),
        ("Confusion", "labels", 3, "a string"),
        ("Confusion", "labels", "(", "regular expressions"),
    ],
)
def test_a_bad_value_says_parameter_value_and_what_is_accepted(
    trial: Any, rule: str, parameter: str, value: Any, accepted: str
) -> None:
    with pytest.raises(InvalidRuleParameter) as raised:
        make_rule(rule, trial, **{parameter: value})
    error = raised.value
    assert (error.rule, error.parameter) == (rule, parameter)
    assert accepted in error.accepted
    assert repr(error.value) in str(error)
    assert isinstance(error, ValueError)


def test_strings_and_native_types_mean_the_same(trial: Any) -> None:
    text = rules.LossNotDecreasing(trial, collection_names="a, b", tensor_regex="x,y", num_steps="7", mode="eval")
    native = rules.LossNotDecreasing(
        trial, collection_names=["a", "b"], tensor_regex=["x", "y"], num_steps=7, mode=ModeKeys.EVAL
    )
    for name in rules.LossNotDecreasing.PARAMETERS:
        assert getattr(text, name) == getattr(native, name)
    assert native.mode is ModeKeys.EVAL
    assert rules.LossNotDecreasing(trial, mode="2").mode is ModeKeys.EVAL
    assert rules.LossNotDecreasing(trial, mode="").mode is None


def test_an_expression_with_a_comma_comes_in_a_list(trial: Any) -> None:
    assert rules.DeadRelu(trial, tensor_regex=["relu.{1,3}"]).tensor_regex == ("relu.{1,3}",)


def test_parameters_by_position(trial: Any) -> None:
    rule = rules.DeadRelu(trial, "act", 2.0)
    assert (rule.tensor_regex, rule.threshold_inactivity, rule.threshold_layer) == (("act",), 2.0, 50.0)
    with pytest.raises(InvalidRuleParameter, match="it takes threshold"):
        rules.VanishingGradient(trial, 1, 2)
    assert str(inspect.signature(rules.VanishingGradient)).startswith("(base_trial, threshold=1e-07")


def test_an_unknown_parameter_offers_the_nearest(trial: Any) -> None:
    with pytest.raises(InvalidRuleParameter, match="did you mean 'threshold'"):
        rules.VanishingGradient(trial, treshold=1)


@pytest.mark.parametrize(("name", "near"), [("VanishingGradients", "VanishingGradient"), ("deadrelu", "DeadRelu")])
def test_an_unknown_rule_offers_the_nearest(trial: Any, name: str, near: str) -> None:
    with pytest.raises(UnknownRule, match="did you mean") as raised:
        make_rule(name, trial)
    assert near in raised.value.near
    assert isinstance(raised.value, KeyError)


def test_an_unknown_rule_offers_none_that_is_not_similar(trial: Any) -> None:
    with pytest.raises(UnknownRule, match="unknown rule 'Foo'; `tensortrial rules` prints their names") as raised:
        make_rule("Foo", trial)
    assert raised.value.near == []


def test_the_registry_holds_every_rule() -> None:
    assert (len(SAGEMAKER), len(OURS), len(RULES)) == (20, 16, 36)
    assert rule_class("StalledTrainingRule") is rules.StalledTraining is rules.StalledTrainingRule
    for name, rule in RULES.items():
        assert getattr(rules, name) is rule
        assert rule.__doc__
        for parameter in rule.PARAMETERS.values():
            assert parameter.text
            parameter.of_default()


def test_all_is_what_can_be_imported() -> None:
    assert sorted(rules.__all__) == rules.__all__
    assert all(getattr(rules, name).__module__.startswith("tensortrial.rules.") for name in rules.__all__)


def test_a_rule_can_have_another_name(trial: Any) -> None:
    assert make_rule("AllZero", trial, rule_name="mine", tensor_regex="x").rule_name == "mine"
