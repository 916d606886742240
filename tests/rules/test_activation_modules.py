"""Activation functions of a real model, which rules find by their class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.training import batches  # noqa: E402
from tensortrial import create_trial, diagnose, rules  # noqa: E402
from tensortrial.errors import InsufficientInformationForRuleInvocation  # noqa: E402
from tensortrial.rules import invoke_rule  # noqa: E402


@pytest.fixture(autouse=True)
def _keeping(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.delenv("TENSORTRIAL_ENVIRONMENT", raising=False)


class MyReLU(nn.ReLU):
    """A class of the user's own."""


class Net(nn.Module):
    def __init__(self, dead: bool) -> None:
        super().__init__()
        self.fc1, self.act1 = nn.Linear(64, 16), nn.ReLU()
        self.block = nn.Sequential(nn.Linear(16, 16), MyReLU(), nn.Linear(16, 16), nn.ReLU6(), nn.Linear(16, 10))
        self.act10 = nn.Identity()  # no ReLU: its name only begins like that of one
        if dead:
            nn.init.constant_(self.fc1.bias, -100.0)

    def forward(self, x: Any) -> Any:
        return self.block(self.act10(self.act1(self.fc1(x)) - 1.0))


def train(folder: Path, net: nn.Module, **options: Any) -> Any:
    loss = nn.CrossEntropyLoss()
    hook = tt.Hook(
        str(folder),
        save_all=True,
        save_config=tt.SaveConfig(save_interval=1),
        **{"environment": ["activations"], **options},
    )
    hook.register_module(net)
    hook.register_loss(loss)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for x, y in batches(4):
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    hook.close()
    return create_trial(folder)


def test_a_dead_relu_is_found_whatever_the_name_of_its_module(tmp_path: Path) -> None:
    trial = train(tmp_path / "dead", Net(dead=True))
    assert trial.environment()["activations"] == {"act1": "ReLU", "block.1": "ReLU", "block.3": "ReLU6"}
    findings = invoke_rule(rules.DeadRelu(trial))
    assert {each.tensor for each in findings} == {"act1_output_0"}
    found = diagnose(trial)
    assert "DeadRelu" in found.checked
    assert any("act1_output_0 has 100.0 % dead units" in str(each) for each in found.problems)


def test_a_healthy_model_has_no_dead_relu(tmp_path: Path) -> None:
    trial = train(tmp_path / "healthy", Net(dead=False))
    assert invoke_rule(rules.DeadRelu(trial)) == []
    assert "DeadRelu" in diagnose(trial).checked


def test_names_that_a_user_passes_are_the_only_ones(tmp_path: Path) -> None:
    trial = train(tmp_path / "dead", Net(dead=True))
    assert invoke_rule(rules.DeadRelu(trial, tensor_regex="^block.*_output")) == []


def test_a_run_that_keeps_no_classes_has_those_with_a_name_of_relu_only(tmp_path: Path) -> None:
    trial = train(tmp_path / "dead", Net(dead=True), environment=False)
    assert "activations" not in trial.environment()
    assert "DeadRelu" not in diagnose(trial).checked


def test_outputs_without_raw_values_are_named(tmp_path: Path) -> None:
    config = tt.ReductionConfig(["mean", "zero_count"])
    found = diagnose(train(tmp_path / "statistics", Net(dead=True), reduction_config=config))
    (reason,) = (each.reason for each in found.unchecked if each.rule == "DeadRelu")
    assert "of tensor 'act1_output_0' no raw value was saved" in reason


@pytest.mark.parametrize("kept", ["ReLU", ["ReLU"], {"act1": ["ReLU"], "block.1": None}, {"(": "ReLU"}])
def test_what_another_program_wrote_in_place_of_classes_is_passed_over(tmp_path: Path, kept: object) -> None:
    folder = tmp_path / "dead"
    train(folder, Net(dead=True)).close()
    files = [file for file in folder.rglob("*.json") if '"activations"' in file.read_text()]
    assert files
    for file in files:
        document = json.loads(file.read_text())
        document["environment"]["activations"] = kept
        del document["checksum"]
        file.write_text(json.dumps(document))
    with pytest.raises(InsufficientInformationForRuleInvocation, match="no tensor with a name like"):
        invoke_rule(rules.DeadRelu(create_trial(folder)))


class Gates(nn.Module):
    """A tanh and a sigmoid under names that say nothing, or the wrong thing."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.fc, self.act, self.not_tanh, self.out = nn.Linear(64, 16), nn.Tanh(), nn.Sigmoid(), nn.Linear(16, 10)
        nn.init.constant_(self.fc.weight, 0.0)
        nn.init.constant_(self.fc.bias, scale)

    def forward(self, x: Any) -> Any:
        hidden = self.fc(x)
        return self.out(self.act(hidden) * self.not_tanh(hidden))


# Beyond the range of tanh, which ends at 9.5, beyond that of both, and inside.
@pytest.mark.parametrize(
    ("scale", "saturated"), [(12.0, {"act_input_0"}), (30.0, {"act_input_0", "not_tanh_input_0"}), (1.0, set())]
)
def test_a_saturated_tanh_or_sigmoid_is_found_by_its_class(tmp_path: Path, scale: float, saturated: set[str]) -> None:
    trial = train(tmp_path / "run", Gates(scale))
    assert trial.environment()["activations"] == {"act": "Tanh", "not_tanh": "Sigmoid"}
    assert {each.tensor for each in invoke_rule(rules.SaturatedActivation(trial))} == saturated
    assert "SaturatedActivation" in diagnose(trial).checked
    with pytest.raises(InsufficientInformationForRuleInvocation):
        invoke_rule(rules.SaturatedActivation(trial, tensor_regex="^nothing"))


class Unequal(nn.Module):
    """Two ReLU layers whose inputs differ in variance by a factor of a million."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.act1, self.two, self.act2 = nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10), nn.ReLU()

    def forward(self, x: Any) -> Any:
        return self.act2(1e3 * self.two(self.act1(self.one(x)))) * 1e-3


def test_a_poor_initialization_is_found_by_the_inputs_of_relu_modules(tmp_path: Path) -> None:
    trial = train(tmp_path / "run", Unequal())
    findings = invoke_rule(rules.PoorWeightInitialization(trial))
    assert any("is the input of an activation with" in str(each) for each in findings)
    named = invoke_rule(rules.PoorWeightInitialization(trial, activation_inputs_regex="^nothing"))
    assert not any("is the input of an activation with" in str(each) for each in named)
