"""Gradients as the steps of registered optimizers use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from support.training import Net, array, loss_of, optimized, same, seeded, sgd  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402

WEIGHT = "Net_fc1.weight"
SEEN = f"optimizer_gradient/{WEIGHT}"


def hooked(make_hook: Any, gradients: Any = "optimizer") -> tuple[Any, Any]:
    net = seeded()
    hook = make_hook(include_collections=["gradients"], gradients=gradients)
    hook.register_module(net)
    return hook, net


def registered(make_hook: Any, make: Any, gradients: Any = "optimizer") -> tuple[Any, Any, Any]:
    return optimized(make_hook, make, include_collections=["gradients"], gradients=gradients)


WAYS = {
    "SGD": sgd,
    "for-loop": lambda net: torch.optim.AdamW(net.parameters(), foreach=False),
    "foreach": lambda net: torch.optim.AdamW(net.parameters(), foreach=True),
    "fused": lambda net: torch.optim.AdamW(net.parameters(), fused=True),
}


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_gradients_of_the_optimizer_are_accumulated_and_clipped(make_hook: Any, make: Any) -> None:
    hook, net, optimizer = registered(make_hook, make, ["local", "optimizer"])
    hook.register_optimizer(optimizer)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    expected = []
    for _ in range(2):
        with hook.step():
            for batch in range(3):
                (loss_of(net, batch) / 3).backward()
            accumulated = array(net.fc1.weight.grad)
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            expected.append((accumulated, array(net.fc1.weight.grad)))
            optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    trial = closed(hook)
    assert trial.steps() == [0, 1]
    for step, (accumulated, clipped) in enumerate(expected):
        assert not same(accumulated, clipped)
        assert same(trial.tensor(f"gradient/{WEIGHT}").value(step), accumulated)
        assert same(trial.tensor(SEEN).value(step), clipped)
    assert {f"gradient/{WEIGHT}", SEEN} <= set(trial.tensor_names(collection="gradients"))


@pytest.mark.parametrize("way", ["for-loop", "fused"])
def test_gradients_of_the_optimizer_have_no_scale(make_hook: Any, way: str) -> None:
    hook, net, optimizer = registered(make_hook, WAYS[way])
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    scaler.scale(loss_of(net)).backward()
    scaled = array(net.fc1.weight.grad)
    scaler.step(optimizer)
    scaler.update()
    trial = closed(hook)
    assert same(trial.tensor(SEEN).value(0), scaled / 1024)
    assert f"gradient/{WEIGHT}" not in trial.tensor_names()


def test_a_step_that_the_scaler_skips_has_no_gradients_of_the_optimizer(make_hook: Any) -> None:
    hook, net, optimizer = registered(make_hook, sgd, "local, optimizer")
    scaler = torch.amp.GradScaler("cpu")
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(loss_of(net) * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    trial = closed(hook)
    assert trial.tensor(SEEN).steps() == [1]
    assert trial.tensor(f"gradient/{WEIGHT}").steps() == [0, 1]


@pytest.mark.parametrize(("moment", "prefix"), [("local", "gradient"), ("optimizer", "optimizer_gradient")])
def test_gradients_of_adversaries_are_those_of_their_own_losses(make_hook: Any, moment: str, prefix: str) -> None:
    torch.manual_seed(0)
    generator, discriminator = nn.Linear(4, 8), nn.Linear(8, 1)
    hook = make_hook(include_collections=["gradients"], gradients=moment)
    hook.register_module(generator, name="generator")
    hook.register_module(discriminator, name="discriminator")
    optimizers = [torch.optim.Adam(net.parameters(), lr=0.1) for net in (generator, discriminator)]
    for each in optimizers if moment == "optimizer" else ():
        hook.register_optimizer(each)
    expected = []
    for _ in range(2):
        noise, real = torch.randn(16, 4), torch.randn(16, 8)
        with hook.step():
            for each in optimizers:
                each.zero_grad()
            (discriminator(generator(noise).detach()) - discriminator(real)).mean().backward()
            own = array(discriminator.weight.grad)
            optimizers[1].step()
            (-discriminator(generator(noise)).mean()).backward()
            assert not same(discriminator.weight.grad, own)
            expected.append((own, array(generator.weight.grad)))
            optimizers[0].step()
    trial = closed(hook)
    assert trial.steps() == [0, 1]
    for step, (own, others) in enumerate(expected):
        assert same(trial.tensor(f"{prefix}/discriminator_weight").value(step), own)
        assert same(trial.tensor(f"{prefix}/generator_weight").value(step), others)


@pytest.mark.parametrize("by_keyword", [False, True])
@pytest.mark.parametrize(
    "make", [sgd, lambda net: torch.optim.LBFGS(net.parameters(), max_iter=3)], ids=["SGD", "LBFGS"]
)
def test_gradients_that_a_closure_computes_are_saved(make_hook: Any, make: Any, by_keyword: bool) -> None:
    hook, net, optimizer = registered(make_hook, make)
    expected = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        expected.append(array(net.fc1.weight.grad))
        return loss

    for _ in range(2):
        returned = optimizer.step(closure=closure) if by_keyword else optimizer.step(closure)
        assert returned.ndim == 0
    gradient = closed(hook).tensor(SEEN)
    assert gradient.steps() == list(range(len(expected)))
    assert all(same(gradient.value(step), each) for step, each in enumerate(expected))


def test_an_error_of_a_closure_is_raised_and_the_hook_stays_on(make_hook: Any, out: str) -> None:
    hook, net, optimizer = registered(make_hook, sgd)

    def fail() -> Any:
        raise ZeroDivisionError("in the closure")

    loss_of(net).backward()
    with pytest.raises(ZeroDivisionError, match="in the closure"):
        optimizer.step(fail)
    optimizer.step()
    hook.close()
    assert create_trial(out).tensor(SEEN).steps() == [0]


def test_wrapped_optimizers_are_registered(make_hook: Any) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = seeded()
    model, optimizer = accelerator.prepare(net, sgd(net))
    hook = make_hook(include_collections=["gradients"], gradients="optimizer")
    hook.register_module(model)
    hook.register_optimizer(optimizer)
    with hook.step():
        for batch in range(2):
            with accelerator.accumulate(model):
                accelerator.backward(loss_of(model, batch))
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 0.01)
                expected = array(net.fc1.weight.grad)
                optimizer.step()
                optimizer.zero_grad()
    assert same(closed(hook).tensor(SEEN).value(0), expected)


def test_an_optimizer_in_backward_saves_what_it_uses(make_hook: Any) -> None:
    hook, net = hooked(make_hook)
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in net.parameters()}
    expected = []

    def update(parameter: Any) -> None:
        parameter.grad.mul_(0.5)
        if parameter is net.fc1.weight:
            expected.append(array(parameter.grad))
        optimizers[parameter].step()
        parameter.grad = None

    for parameter, optimizer in optimizers.items():
        hook.register_optimizer(optimizer)
        parameter.register_post_accumulate_grad_hook(update)
    for batch in range(2):
        loss_of(net, batch).backward()
    gradient = closed(hook).tensor(SEEN)
    assert [same(gradient.value(step), each) for step, each in enumerate(expected)] == [True, True]


def test_nothing_is_captured_at_steps_that_are_not_due(make_hook: Any, out: str) -> None:
    every_other = {"include_collections": ["gradients"], "gradients": "optimizer", "save_config": {"save_interval": 2}}
    hook, net, optimizer = optimized(make_hook, sgd, **every_other)
    for _ in range(4):
        loss_of(net).backward()
        optimizer.step()
    hook.close()
    assert create_trial(out).tensor(SEEN).steps() == [0, 2]


def test_copied_optimizers_do_not_have_the_callback(make_hook: Any, tmp_path: Path) -> None:
    import copy

    *_, optimizer = registered(make_hook, sgd)
    twin = copy.deepcopy(optimizer)
    assert not getattr(twin, "_optimizer_step_pre_hooks", None)
    torch.save(optimizer.state_dict(), tmp_path / "state")
    torch.save(optimizer, tmp_path / "optimizer")
    assert torch.load(tmp_path / "optimizer", weights_only=False).param_groups[0]["lr"] == 0.1


class Foreign(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer that changes what another one does, and does not call the constructor of torch's."""

    def __init__(self, base: Any) -> None:
        self.base = [base]

    param_groups = property(lambda self: self.base[0].param_groups)
    state = property(lambda self: self.base[0].state)

    def step(self, closure: Any = None) -> Any:
        return self.base[0].step(closure)


class Bare(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer without another one, which does not call the constructor of torch's either."""

    def __init__(self, parameters: Any) -> None:
        self.param_groups = [{"params": list(parameters)}]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for parameter in self.param_groups[0]["params"]:
            parameter.add_(parameter.grad, alpha=-0.1)


@pytest.mark.parametrize("wraps", [True, False])
def test_an_optimizer_that_does_not_call_the_constructor_of_torchs_is_seen_by_the_one_inside_it(
    make_hook: Any, wraps: bool, caplog: pytest.LogCaptureFixture
) -> None:
    hook, net = hooked(make_hook, ["local", "optimizer"])
    optimizer = Foreign(sgd(net)) if wraps else Bare(net.parameters())
    hook.register_optimizer(optimizer)
    expected = []
    for batch in range(2):
        net.zero_grad()
        loss_of(net, batch).backward()
        expected.append(array(net.fc1.weight.grad))
        optimizer.step()
    trial = closed(hook)
    for name in (f"gradient/{WEIGHT}", *([SEEN, "hyperparameters/SGD/group_0/lr"] if wraps else [])):
        assert trial.tensor(name).steps() == [0, 1]
    assert all(same(trial.tensor(f"gradient/{WEIGHT}").value(step), each) for step, each in enumerate(expected))
    assert ("the updates by Bare are not seen" in caplog.text) is not wraps


@pytest.mark.parametrize("bad", [None, "SGD", nn.Linear(1, 1), torch.optim.SGD])
def test_what_is_no_optimizer_is_refused(make_hook: Any, bad: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"register_optimizer takes a torch\.optim\.Optimizer, got a"):
        make_hook().register_optimizer(bad)


@pytest.mark.parametrize("bad", ["global", "", None, 3, ["local", "x"], [2]])
def test_an_unknown_moment_of_gradients_is_refused(make_hook: Any, bad: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"gradients must be|names must be|a name must be"):
        make_hook(gradients=bad)


def test_a_model_has_the_name_that_it_was_registered_with(make_hook: Any) -> None:
    hook = make_hook(save_all=True)
    one, two, three = Net(), Net(), Net()
    hook.register_module(one, name="Net")
    hook.register_module(two)
    hook.register_module(three, name="net (ema)")
    hook.register_module(three, name="net (ema)")
    for bad in ("Net", "Net_1", "net (ema)"):
        with pytest.raises(ConfigurationError, match="cannot use the name"):
            hook.register_module(Net(), name=bad)
    for bad in (3, ""):
        with pytest.raises(ConfigurationError, match="must be text and not empty"):
            hook.register_module(Net(), name=bad)
    with hook.step():
        for net in (one, two, three):
            loss_of(net).backward()
    names = set(closed(hook).tensor_names())
    for name in ("Net", "Net_1", "net (ema)"):
        assert {f"{name}_fc1.weight", f"gradient/{name}_fc1.weight", f"{name}_output_0"} <= names


def test_gradients_of_a_model_are_saved_whatever_models_have_names_that_begin_alike(make_hook: Any) -> None:
    one, two = Net(), Net()
    hook = make_hook(include_collections=["gradients"])
    hook.register_module(one, name="a")
    hook.register_module(two, name="a_b")
    losses = [loss_of(net) for net in (two, one)]
    for loss in losses:
        loss.backward()
    assert "gradient/a_b_fc1.weight" in closed(hook).tensor_names(step=1)


@pytest.mark.parametrize("case", ["none", "late", "of another model"])
def test_gradients_of_the_optimizer_that_cannot_be_saved_are_logged_once(
    make_hook: Any, caplog: pytest.LogCaptureFixture, case: str
) -> None:
    hook, net = hooked(make_hook)
    optimizer = sgd(Net() if case == "of another model" else net)
    if case != "none":
        hook.register_optimizer(optimizer)
    for _ in range(3):
        if case == "late":
            with hook.step():
                loss_of(net).backward()
        else:
            loss_of(net).backward()
        optimizer.step()
    others = ("nothing was saved", "no loss is saved")
    texts = [each for each in caplog.messages if not each.startswith(others)]
    expected = {
        "none": 'gradients="optimizer" saves no gradients before hook.register_optimizer(optimizer) is called',
        "late": "the gradients of SGD are not saved: call its step() inside `with hook.step():`",
        "of another model": "the gradients of SGD are not saved: no registered model has one of its parameters",
    }
    assert texts == [expected[case]]


def test_a_step_without_gradients_is_no_warning(make_hook: Any, out: str, caplog: pytest.LogCaptureFixture) -> None:
    hook, net, optimizer = registered(make_hook, sgd)
    loss_of(net)
    optimizer.step()  # the batch is left out
    loss_of(net).backward()
    optimizer.step()
    hook.close()
    assert create_trial(out).tensor(SEEN).steps() == [1]
    assert not [each for each in caplog.messages if "gradients of SGD" in each]
