"""The built-in rules on activations, on runs whose values are known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.rule_runs import Write, fired
from tensortrial import rules
from tensortrial.errors import InsufficientInformationForRuleInvocation
from tensortrial.rules import invoke_rule


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


def test_layers_without_raw_values_are_one_error_and_no_warnings(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    outputs = {f"relu{number}_output_0": np.zeros((8, 4)) for number in range(3)}
    trial = write([outputs], raw=False, statistics=("l2",))
    with pytest.raises(InsufficientInformationForRuleInvocation, match="no raw value was saved"):
        invoke_rule(rules.DeadRelu(trial))
    assert caplog.messages == []


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
    assert invoke_rule(rules.SaturatedActivation(write([{"tanh_input_0": np.ones((0, 2))}], name="none", **plan))) == []
    beyond = write([{"tanh_input_0": np.full((4, 2), 99.0)}], name="beyond", **plan)
    with pytest.raises(InsufficientInformationForRuleInvocation, match="save_raw_tensor=True"):
        invoke_rule(rules.SaturatedActivation(beyond))


def test_dead_features(write: Write) -> None:
    def active(*units: int) -> dict[str, Any]:
        value = np.zeros((8, 10), np.float32)
        value[3, list(units)] = 1
        return {"relu_output_0": value}

    halves = [active(0, 1, 2, 3, 4), active(5, 6, 7, 8, 9)]
    assert invoke_rule(rules.DeadFeatures(write(halves * 5))) == []
    (finding,) = invoke_rule(rules.DeadFeatures(write([active(*range(8))] * 12, name="dead")))
    assert (finding.step, finding.observed) == (9, 20.0)
