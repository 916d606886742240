"""Hyperparameters of registered optimizers, and what their steps change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.torch_kernels import Clones  # noqa: E402
from support.training import array, batches, loss_of, optimized, same, seeded, sgd  # noqa: E402
from tensortrial import create_trial  # noqa: E402

WEIGHT = "Net_fc1.weight"


def test_hyperparameters_of_each_group_are_saved_as_the_update_uses_them(make_hook: Any) -> None:
    net = seeded()
    hook = make_hook(save_config=tt.SaveConfig(save_interval=2))
    hook.register_module(net)
    groups = [{"params": net.fc1.parameters(), "lr": 0.5}, {"params": net.fc2.parameters(), "weight_decay": 1}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    hook.register_optimizer(optimizer)
    expected = []
    for batch in range(3):
        loss_of(net, batch).backward()
        expected.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        scheduler.step()
    trial = closed(hook)
    assert trial.steps() == [0, 2]
    for step in trial.steps():
        rates = [trial.tensor(f"hyperparameters/AdamW/group_{i}/lr").value(step) for i in range(2)]
        assert rates == expected[step]
    assert trial.tensor("hyperparameters/AdamW/group_1/weight_decay").value(0) == 1
    assert trial.tensor("hyperparameters/AdamW/group_0/betas_1").value(0) == 0.999
    names = trial.tensor_names(collection="hyperparameters")
    assert not [name for name in names if "amsgrad" in name or "params" in name]
    assert trial.sql("select count(distinct name) from scalars").fetchall() == [(len(names),)]


def test_a_learning_rate_that_is_a_tensor_is_saved(make_hook: Any, out: str) -> None:
    hook, net, optimizer = optimized(make_hook, lambda net: torch.optim.Adam(net.parameters(), lr=torch.tensor(0.25)))
    loss_of(net).backward()
    optimizer.step()
    hook.close()
    assert create_trial(out).tensor("hyperparameters/Adam/group_0/lr").value(0) == 0.25


def test_several_optimizers_of_a_class_have_names_of_their_own(make_hook: Any) -> None:
    net = seeded()
    hook = make_hook()
    hook.register_module(net)
    optimizers = [torch.optim.SGD(part.parameters(), lr=rate) for part, rate in ((net.fc1, 1.0), (net.fc2, 2.0))]
    for optimizer in optimizers:
        hook.register_optimizer(optimizer)
    loss_of(net).backward()
    for optimizer in optimizers:
        optimizer.step()
    trial = closed(hook)
    assert [trial.tensor(f"hyperparameters/{name}/group_0/lr").value(0) for name in ("SGD", "SGD_1")] == [1, 2]


def test_a_group_that_is_added_while_training_is_saved(make_hook: Any, out: str) -> None:
    hook, net, optimizer = optimized(make_hook, lambda net: torch.optim.SGD(net.fc1.parameters(), lr=0.1))
    for step in range(2):
        if step:
            optimizer.add_param_group({"params": list(net.fc2.parameters()), "lr": 0.7})
        loss_of(net).backward()
        optimizer.step()
    hook.close()
    assert create_trial(out).tensor("hyperparameters/SGD/group_1/lr").steps() == [1]


WAYS = {
    "SGD": lambda net: torch.optim.SGD(net.parameters(), lr=0.1),
    "foreach": lambda net: torch.optim.AdamW(net.parameters(), foreach=True),
    "fused": lambda net: torch.optim.AdamW(net.parameters(), fused=True),
}


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_updates_are_saved_as_norms_and_ratios_without_values(make_hook: Any, make: Any) -> None:
    hook, net, optimizer = optimized(
        make_hook, make, include_collections=["updates"], save_config=tt.SaveConfig(save_interval=2)
    )
    expected = []
    for batch in range(3):
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        before = array(net.fc1.weight)
        optimizer.step()
        change = float(np.linalg.norm(array(net.fc1.weight) - before))
        expected.append((change, change / float(np.linalg.norm(before))))
    trial = closed(hook)
    update, ratio = trial.tensor(f"update/{WEIGHT}"), trial.tensor(f"update_ratio/{WEIGHT}")
    assert update.steps() == ratio.steps() == [0, 2]
    for step in update.steps():
        assert update.reduction_value(step, "l2") == pytest.approx(expected[step][0], rel=1e-5)
        assert float(ratio.value(step)) == pytest.approx(expected[step][1], rel=1e-5)
    assert not trial.sql("select 1 from tensors where chunk is not null").fetchall()
    assert sorted(trial.tensor_names(collection="updates"))[:2] == ["update/Net_fc1.bias", f"update/{WEIGHT}"]


def test_the_values_of_updates_are_saved_on_request(make_hook: Any) -> None:
    net = seeded().to(torch.bfloat16)
    hook = make_hook(include_collections=["updates"])
    hook.get_collection("updates").reduction_config = tt.ReductionConfig(norms=["l2"], save_raw_tensor=True)
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hook.register_optimizer(optimizer)
    x, y = batches(1)[0]
    nn.functional.cross_entropy(net(x.to(torch.bfloat16)), y).backward()
    before = net.fc1.weight.detach().float()
    optimizer.step()
    assert same(closed(hook).tensor(f"update/{WEIGHT}").value(0), array(net.fc1.weight.detach().float() - before))


def test_the_update_of_a_zero_parameter_has_an_infinite_ratio(make_hook: Any) -> None:
    net = seeded()
    nn.init.zeros_(net.fc1.bias)
    hook = make_hook(include_collections=["updates"])
    hook.register_module(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    hook.register_optimizer(optimizer)
    loss_of(net).backward()
    optimizer.step()
    assert closed(hook).tensor("update_ratio/Net_fc1.bias").value(0) == float("inf")


def test_a_zero_parameter_that_a_step_leaves_unchanged_has_the_ratio_zero(make_hook: Any) -> None:
    net = seeded()
    nn.init.zeros_(net.fc1.bias)
    hook = make_hook(include_collections=["updates"])
    hook.register_module(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.0)  # as in the first step of a warm-up
    hook.register_optimizer(optimizer)
    loss_of(net).backward()
    optimizer.step()
    trial = closed(hook)
    ratios = {name: float(trial.tensor(name).value(0)) for name in trial.tensor_names(regex="^update_ratio/")}
    assert ratios == dict.fromkeys([f"update_ratio/Net_fc{i}.{kind}" for i in (1, 2) for kind in ("bias", "weight")], 0)


def test_the_update_of_a_closure_is_that_after_its_last_call(make_hook: Any) -> None:
    hook, net, optimizer = optimized(
        make_hook, lambda net: torch.optim.LBFGS(net.parameters(), max_iter=3), include_collections=["updates"]
    )
    weights = []

    def closure() -> Any:
        optimizer.zero_grad()
        weights.append(array(net.fc1.weight))
        loss = loss_of(net)
        loss.backward()
        return loss

    with hook.step():
        optimizer.step(closure)
    optimizer.step(closure)
    update = closed(hook).tensor(f"update/{WEIGHT}")
    first, last = update.steps()[0], update.steps()[-1]
    assert update.reduction_value(first, "l2") == pytest.approx(np.linalg.norm(weights[3] - weights[0]), rel=1e-4)
    assert last == 3
    assert update.reduction_value(last, "l2") == pytest.approx(
        np.linalg.norm(array(net.fc1.weight) - weights[-1]), rel=1e-4
    )


def test_parameters_are_copied_only_where_updates_are_due(make_hook: Any) -> None:
    _, net, optimizer = optimized(
        make_hook, sgd, include_collections=["updates"], save_config=tt.SaveConfig(save_interval=2)
    )
    copied = []
    for _ in range(3):
        loss_of(net).backward()
        with Clones() as clones:
            optimizer.step()
        copied.append(clones.made)
        assert clones.alive == 0
    # Each of the four parameters, its update, and the ratio of both.
    assert copied == [12, 0, 12]


ADAMS = [{}, {"foreach": True}, {"fused": True}]


@pytest.mark.parametrize("options", ADAMS, ids=["plain", "foreach", "fused"])
def test_the_moments_of_adam_are_saved_as_statistics(make_hook: Any, options: Any) -> None:
    hook, net, optimizer = optimized(
        make_hook, lambda net: torch.optim.AdamW(net.parameters(), lr=0.01, **options), include_collections=["health"]
    )
    expected = []
    for batch in range(3):
        optimizer.zero_grad()
        loss_of(net, batch).backward()
        optimizer.step()
        expected.append({key: float(optimizer.state[net.fc1.weight][key].norm()) for key in ("exp_avg", "exp_avg_sq")})
    trial = closed(hook)
    for step, norms in enumerate(expected):
        for key, norm in norms.items():
            tensor = trial.tensor(f"moment/{key}/{WEIGHT}")
            assert tensor.reduction_value(step, "l2") == pytest.approx(norm, rel=1e-6)
    assert not [name for name in trial.tensor_names() if name.startswith("moment/step")]
    assert not trial.sql("select 1 from tensors where chunk is not null and name not like '%loss%'").fetchall()


def test_optimizers_that_step_inside_the_backward_save_updates_and_moments(make_hook: Any) -> None:
    net = seeded()
    hook = make_hook(include_collections=["updates"], include_regex="^moment/")
    hook.register_module(net)
    optimizers = {parameter: torch.optim.Adam([parameter], lr=0.01) for parameter in net.parameters()}
    for optimizer in optimizers.values():
        hook.register_optimizer(optimizer)

    def step(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    before = net.fc1.weight.detach().clone()
    for batch in range(2):
        loss_of(net, batch).backward()
    trial = closed(hook)
    assert trial.tensor(f"update/{WEIGHT}").steps() == [0, 1]
    assert trial.tensor(f"moment/exp_avg/{WEIGHT}").steps() == [0, 1]
    ratio = trial.tensor(f"update/{WEIGHT}").reduction_value(0, "l2") / float(before.norm())
    assert trial.tensor(f"update_ratio/{WEIGHT}").value(0) == pytest.approx(ratio, rel=1e-5)


def test_health_saves_statistics_of_outputs_gradients_and_parameters(make_hook: Any) -> None:
    net = seeded()
    hook = make_hook(include_collections=["health"])
    hook.register_module(net)
    loss_of(net).backward()
    trial = closed(hook)
    names = trial.tensor_names()
    assert {WEIGHT, f"gradient/{WEIGHT}", "fc1_output_0"} <= set(names)
    assert not [name for name in names if "_input_" in name]
    found = {name for name, _ in trial.tensor("fc1_output_0").reduction_values(0)}
    assert {"rms", "kurtosis", "skewness", "l2", "zero_count", "max"} <= found
    assert "health" in trial.collections()


@pytest.mark.parametrize("shape", [(1,), ()])
def test_a_parameter_of_one_element_has_moments(make_hook: Any, shape: tuple[int, ...]) -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(shape))

        def forward(self, x: Any) -> Any:
            return x * self.weight

    hook, net = make_hook(include_collections=["updates"], include_regex="^moment/"), Scale()
    hook.register_module(net)
    optimizer = torch.optim.Adam(net.parameters())
    hook.register_optimizer(optimizer)
    net(torch.ones(3)).sum().backward()
    optimizer.step()
    names = [name for name in closed(hook).tensor_names() if name.startswith("moment/")]
    assert names == ["moment/exp_avg/Scale_weight", "moment/exp_avg_sq/Scale_weight"]


class Doubling(torch.optim.Optimizer):  # type: ignore[misc, name-defined]
    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.copy_(2 * parameter.float())


def test_the_update_of_a_parameter_of_eight_bits_is_saved(make_hook: Any) -> None:
    net, hook = seeded(), make_hook(include_collections=["updates"])
    net.small = nn.Parameter(torch.ones(4).to(torch.float8_e4m3fn), requires_grad=False)
    net.small.grad = torch.zeros_like(net.small)
    hook.register_module(net)
    hook.register_optimizer(optimizer := Doubling([net.small], {}))
    loss_of(net).backward()
    optimizer.step()
    assert closed(hook).tensor("update/Net_small").reduction_value(0, "l2") == 2


class Wrapper(torch.Tensor):  # type: ignore[misc, name-defined]
    """A parameter whose values are in another tensor."""

    @staticmethod
    def __new__(cls, values: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, values.shape, dtype=values.dtype)
        made.values_inside = values
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*(getattr(each, "values_inside", each) for each in args), **(kwargs or {}))
        return cls(result) if function in (torch.ops.aten.detach.default, torch.ops.aten.clone.default) else result


@pytest.mark.usefixtures("lenient")
def test_a_parameter_that_cannot_be_copied_leaves_the_updates_of_others(make_hook: Any) -> None:
    net = seeded()
    net.scale = nn.Parameter(Wrapper(torch.ones(64)))
    net.register_forward_pre_hook(lambda module, args: (args[0] * module.scale,))
    hook = make_hook(include_collections=["updates"])
    hook.register_module(net)
    optimizer = torch.optim.SGD([net.scale, *net.fc1.parameters()], lr=0.1)
    hook.register_optimizer(optimizer)
    loss_of(net).backward()
    optimizer.step()
    assert hook.recorder.active
    trial = closed(hook)
    assert trial.has_tensor("update/Net_fc1.weight")
    assert not trial.has_tensor("update/Net_scale")
