"""The built-in rules on any tensors, on runs whose values are known."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from support.rule_runs import Write, fired
from support.runs import EVAL
from tensortrial import rules
from tensortrial.errors import InsufficientInformationForRuleInvocation, InvalidRuleParameter
from tensortrial.rules import invoke_rule


@pytest.mark.parametrize(
    "plan", [{}, {"raw": False, "statistics": ("nan_count", "inf_count")}, {"raw": False, "statistics": ("l2",)}]
)
def test_exploding_tensor(write: Write, plan: dict[str, Any]) -> None:
    good = np.ones(3)
    trial = write([{"a": good}, {"a": good * math.inf}, {"a": good * math.nan}, {"b": np.empty(0)}], **plan)
    assert fired(invoke_rule(rules.ExplodingTensor(trial))) == [1, 2]
    assert fired(invoke_rule(rules.ExplodingTensor(trial, only_nan="True"))) == [2]
    assert invoke_rule(rules.ExplodingTensor(trial, tensor_regex="b")) == []


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


@pytest.mark.parametrize("plan", [{}, {"raw": False, "statistics": ("zero_count",)}])
def test_all_zero(write: Write, plan: dict[str, Any]) -> None:
    trial = write([{"a": np.array([0, 0, 0, 1.0])}, {"a": np.zeros((2, 2))}], **plan)
    assert fired(invoke_rule(rules.AllZero(trial, tensor_regex="a"))) == [1]
    assert fired(invoke_rule(rules.AllZero(trial, tensor_regex="a", threshold="75"))) == [0, 1]


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


def test_low_precision_saturation(write: Write) -> None:
    top = float(np.finfo(np.float16).max)
    half = np.ones(1000, np.float16)
    saturated, flushed = half.copy(), half.copy()
    saturated[:5], flushed[:600] = top, 0
    fp8 = np.full(8, 448.0).astype(ml_dtypes.float8_e4m3fn)
    trial = write([{"a": half, "wide": np.zeros(3)}, {"a": saturated}, {"a": flushed}, {"b": fp8}])
    found = invoke_rule(rules.LowPrecisionSaturation(trial))
    assert [(f.step, f.tensor, f.observed) for f in found] == [(1, "a", 0.5), (2, "a", 60.0), (3, "b", 100.0)]


@pytest.mark.parametrize(
    ("value", "collection"),
    [([0.5, math.nan], "trees"), ([math.nan], "hyperparameters"), ([[0.0, -math.inf], [0.0, 0.0]], "inputs")],
    ids=["the columns of trees", "a setting", "a mask"],
)
def test_exploding_tensor_passes_over_what_is_not_finite_by_design(
    write: Write, value: list[Any], collection: str
) -> None:
    trial = write([{"a": np.array(value)}], collections=(collection,))
    assert invoke_rule(rules.ExplodingTensor(trial)) == []
    assert fired(invoke_rule(rules.ExplodingTensor(trial, tensor_regex="a"))) == ([0] if collection != "inputs" else [])


def test_exploding_tensor_takes_nothing_but_zeros_and_negative_infinities_for_a_mask(write: Write) -> None:
    logits = [[-math.inf, -math.inf], [0.0, math.inf], [0.0, -math.inf, 1.0], [-1.0, -math.inf]]
    trial = write([{"a": np.array(each)} for each in logits])
    assert fired(invoke_rule(rules.ExplodingTensor(trial))) == [0, 1, 2, 3]
