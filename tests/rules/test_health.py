"""The rules on the health of a model: silent in healthy trainings, and naming what is wrong in sick ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.rule_runs import LOSSES, Write, fired, losses
from tensortrial import rules
from tensortrial.errors import InsufficientInformationForRuleInvocation
from tensortrial.rules import Finding, invoke_rule

STEPS = 20


def trained(run: Path, rate: float = 1e-3, dtype: str = "float32", scale: float = 1.0, outlier: float = 0.0) -> Any:
    """Train a network on digits with the collection `health`, and open the run.

    From the middle on, the weights of one hidden unit grow by the factor `outlier`.
    """
    torch = pytest.importorskip("torch")
    from sklearn.datasets import load_digits

    import tensortrial.hooks.pytorch as tt

    torch.manual_seed(0)
    x, y = (torch.tensor(each) for each in load_digits(return_X_y=True))
    x = (x / 16).to(getattr(torch, dtype))
    layers = torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)
    model, criterion = torch.nn.Sequential(*layers).to(x.dtype), torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, eps=1e-4)
    hook = tt.Hook(run, include_collections=["health"], save_config=tt.SaveConfig(save_interval=1))
    hook.register_module(model)
    hook.register_optimizer(optimizer)
    for step in range(STEPS):
        if outlier and step == STEPS // 2:
            with torch.no_grad():
                model[0].weight[7] *= outlier
        rows = slice(step * 64, step * 64 + 64)
        optimizer.zero_grad()
        loss = criterion(model(x[rows]).float(), y[rows])
        hook.save_scalar("loss", float(loss.detach()))
        (loss * scale).backward()
        optimizer.step()
    hook.close()
    return tensortrial.create_trial(run)


def found(rule: str, trial: Any, **parameters: Any) -> list[Finding]:
    return invoke_rule(rules.make_rule(rule, trial, **parameters))


def test_a_healthy_training_has_no_findings(tmp_path: Path) -> None:
    trial = trained(tmp_path)
    for rule in (
        "UpdateRatioOutOfRange",
        "UntrainedParameter",
        "ActivationOutliers",
        "PrecisionUnderflow",
        "GradientNormSpike",
    ):
        assert found(rule, trial) == [], rule


def test_updates_that_are_too_large_are_found_after_some_steps(tmp_path: Path) -> None:
    findings = found("UpdateRatioOutOfRange", trained(tmp_path, rate=0.3))
    assert findings[0].step == 4
    assert findings[0].tensor in ("update_ratio/Sequential_0.weight", "update_ratio/Sequential_2.weight")
    assert "above 0.1, at 5 saved steps in a row" in findings[0].sentence


def test_updates_that_bfloat16_rounds_away_are_found(tmp_path: Path) -> None:
    # A step of 1e-7 is far below the distance of neighboring bfloat16 around 0.1.
    findings = found("UpdateRatioOutOfRange", trained(tmp_path, rate=1e-9, dtype="bfloat16"))
    assert {finding.tensor for finding in findings} == {
        "update_ratio/Sequential_0.weight",
        "update_ratio/Sequential_2.weight",
    }
    assert findings[0].observed == 0.0


def test_a_learning_rate_of_0_explains_updates_of_0(tmp_path: Path) -> None:
    trial = trained(tmp_path, rate=0.0)
    assert found("UpdateRatioOutOfRange", trial) == []
    assert {each.sentence.partition(", ")[0] for each in found("UntrainedParameter", trial)} == {
        f"Sequential_{layer}.{kind} has gradients" for layer in (0, 2) for kind in ("weight", "bias")
    }


@pytest.mark.parametrize(("other_rate", "fires_at"), [(0.0, []), (0.1, [4, 5])])
def test_a_learning_rate_of_0_in_one_group_explains_updates_of_exactly_0(
    write: Write, other_rate: float, fires_at: list[int]
) -> None:
    values = {"update_ratio/a.weight": 0.0, "update_ratio/b.weight": 1e-3}
    rates = {"hyperparameters/SGD/group_0/lr": other_rate, "hyperparameters/SGD/group_1/lr": 0.1}
    assert fired(found("UpdateRatioOutOfRange", write([{**values, **rates}] * 6))) == fires_at


def test_a_unit_that_grows_is_an_outlier_of_its_layer(tmp_path: Path) -> None:
    findings = found("ActivationOutliers", trained(tmp_path, outlier=500.0))
    assert findings[0].step == STEPS // 2
    assert findings[0].tensor == "0_output_0"
    assert (findings[0].observed or 0) > 100


def test_gradients_that_float16_cannot_hold_are_found_unless_the_loss_is_scaled(tmp_path: Path) -> None:
    findings = found("PrecisionUnderflow", trained(tmp_path / "small", dtype="float16", scale=1e-3))
    assert "gradient/Sequential_0.weight" in {finding.tensor for finding in findings}
    assert "subnormal numbers of float16" in findings[0].sentence
    assert found("PrecisionUnderflow", trained(tmp_path / "scaled", dtype="float16", scale=512.0)) == []


def test_a_run_without_their_statistics_says_what_to_save(write: Write) -> None:
    trial = write([{"x": 1.0}])
    for rule in ("UpdateRatioOutOfRange", "UntrainedParameter", "ActivationOutliers", "PrecisionUnderflow"):
        with pytest.raises(InsufficientInformationForRuleInvocation, match="include_"):
            found(rule, trial)


def test_underflow_needs_no_statistics_of_dtypes_that_cannot_underflow(write: Write) -> None:
    trial = write([{"g": np.ones((2, 2), np.float32)}], raw=False, statistics=("l2",), collections=("gradients",))
    assert found("PrecisionUnderflow", trial) == []
    half = {"g": np.ones((2, 2), np.float16)}
    trial = write([half], raw=False, statistics=("l2",), collections=("gradients",), name="half")
    with pytest.raises(InsufficientInformationForRuleInvocation, match="subnormal_count"):
        found("PrecisionUnderflow", trial)


def test_a_ratio_of_nan_or_infinity_is_left_to_other_rules(write: Write) -> None:
    trial = write([{"update_ratio/w": value} for value in (math.nan, math.inf) * 6])
    assert found("UpdateRatioOutOfRange", trial) == []
    trial = write([{"update_ratio/w": 0.5}] * 3 + [{"update_ratio/w": 0.01}] + [{"update_ratio/w": 0.5}] * 5, name="b")
    assert fired(found("UpdateRatioOutOfRange", trial)) == [8]


def test_a_loss_above_the_mean_and_six_deviations_of_the_last_128_is_a_spike(write: Write) -> None:
    rng = np.random.default_rng(0)
    values = (2.0 + 0.1 * rng.standard_normal(200)).tolist()
    values[150] = 2.9
    trial = write(losses(values), **LOSSES)
    (finding,) = found("LossSpike", trial)
    before = values[22:150]
    assert finding.step == 150
    assert finding.observed == pytest.approx((2.9 - np.mean(before)) / np.std(before, ddof=1))
    assert found("LossSpike", trial, rise_percent=50) == []
    assert found("LossSpike", trial, use_mean=False, window=50, threshold=8)[0].step == 150


def losses_of(run: Path, bad_batch: int | None, steps: int = 300) -> Any:
    """Train a network on digits for several epochs, with one batch whose inputs are 200 times too large."""
    torch = pytest.importorskip("torch")
    from sklearn.datasets import load_digits

    import tensortrial.hooks.pytorch as tt

    torch.manual_seed(0)
    x, y = (torch.tensor(each) for each in load_digits(return_X_y=True))
    x = (x / 16).float()
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    hook = tt.Hook(run, save_config=tt.SaveConfig(save_interval=1))
    hook.register_module(model)
    hook.register_loss(criterion)
    for step in range(steps):
        rows = torch.randint(0, len(x), (64,))
        optimizer.zero_grad()
        criterion(model(x[rows] * (200 if step == bad_batch else 1)), y[rows]).backward()
        optimizer.step()
    hook.close()
    return tensortrial.create_trial(run)


def test_a_bad_batch_is_a_spike_of_the_loss_and_no_other_one_is(tmp_path: Path) -> None:
    assert found("LossSpike", losses_of(tmp_path / "healthy", None)) == []
    findings = found("LossSpike", losses_of(tmp_path / "sick", 250))
    assert findings[0].step == 250


def test_the_infinite_ratio_of_a_weight_of_zeros_is_no_explosion(write: Write) -> None:
    steps = [{"update_ratio/w": math.inf, "update_ratio/v": math.nan, "w": np.zeros(3)}] * 2
    trial = write(steps)
    assert found("ExplodingTensor", trial) == []
    assert len(found("ExplodingTensor", trial, tensor_regex="^update_ratio/")) == 4


def attending(run: Path, growth: float = 1.0) -> Any:
    """Train attention over the rows of digits, with its statistics. Each update multiplies its weights by `growth`."""
    torch = pytest.importorskip("torch")
    from sklearn.datasets import load_digits

    import tensortrial.hooks.pytorch as tt

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = torch.nn.Linear(8, 48), torch.nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            q, k, v = (each.unflatten(-1, (2, 8)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1))
            mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            return self.out(mixed.transpose(1, 2).flatten(2).mean(1))

    torch.manual_seed(0)
    x, y = (torch.tensor(each) for each in load_digits(return_X_y=True))
    x = (x / 16).float().reshape(-1, 8, 8)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    hook = tt.Hook(run, save_config=tt.SaveConfig(save_interval=1))
    hook.register_module(model)
    for step in range(STEPS):
        rows = slice(step * 64, step * 64 + 64)
        optimizer.zero_grad()
        with tt.attention_statistics(hook):
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.qkv.weight *= growth
    hook.close()
    return tensortrial.create_trial(run)


def test_attention_whose_logits_grow_is_found(tmp_path: Path) -> None:
    assert found("AttentionLogitGrowth", attending(tmp_path / "healthy")) == []
    findings = found("AttentionLogitGrowth", attending(tmp_path / "sick", growth=1.25))
    assert findings[0].tensor == "attention/0/logit_max"
    assert (findings[0].observed or 0) > 100


def routed(run: Path, bias: float, **saved: Any) -> Any:
    """Train a mixture of four experts on digits, whose router prefers the first one by `bias`."""
    torch = pytest.importorskip("torch")
    from sklearn.datasets import load_digits

    import tensortrial.hooks.pytorch as tt

    class Mixture(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = torch.nn.Linear(64, 4)
            self.experts = torch.nn.ModuleList(torch.nn.Linear(64, 10) for _ in range(4))

        def forward(self, x: Any) -> Any:
            chances = torch.softmax(self.gate(x), dim=-1)
            chance, chosen = chances.max(dim=-1)
            each = torch.stack([expert(x) for expert in self.experts], dim=1)
            return each[torch.arange(len(x)), chosen] * chance[:, None]

    torch.manual_seed(0)
    x, y = (torch.tensor(each) for each in load_digits(return_X_y=True))
    x = ((x - x.mean()) / x.std()).float()
    model = Mixture()
    with torch.no_grad():
        model.gate.bias[0] += bias
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    hook = tt.Hook(run, **saved, save_config=tt.SaveConfig(save_interval=1))
    hook.register_module(model)
    for step in range(STEPS):
        rows = slice(step * 64, step * 64 + 64)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    hook.close()
    return tensortrial.create_trial(run)


SAVED = {"health": {"include_collections": ["health"]}, "outputs": {"include_regex": ["gate_output_0$"]}}


@pytest.mark.parametrize(("saved", "tensor"), [("health", "router/gate/load"), ("outputs", "gate_output_0")])
def test_a_router_that_uses_one_expert_is_found(tmp_path: Path, saved: str, tensor: str) -> None:
    assert found("RouterCollapse", routed(tmp_path / "healthy", bias=0.0, **SAVED[saved])) == []
    findings = found("RouterCollapse", routed(tmp_path / "sick", bias=20.0, **SAVED[saved]))
    assert (findings[0].step, findings[0].tensor) == (4, tensor)
    assert findings[0].observed == pytest.approx(1.0)
    assert "uses 1.00 of 4 experts" in findings[0].sentence
