"""The gradients that a step saves, also if they are consumed, scaled, swapped or renamed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from support.training import Net, array, batches, loss_of, same, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402

GRADIENT = "gradient/Net_fc1.weight"


def hooked(make_hook: Any, net: Any = None, **options: Any) -> tuple[Any, Any]:
    hook, net = make_hook(**{"include_collections": ["weights", "biases", "gradients"], **options}), net or seeded()
    hook.register_module(net)
    return hook, net


def expected_gradient(steps: int = 1) -> Any:
    """Return the gradient of the last of some steps, by plain PyTorch."""
    twin = seeded()
    train(twin, steps)
    return array(twin.fc1.weight.grad)


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_are_saved_before_an_optimizer_in_backward_consumes_them(make_hook: Any, to_none: bool) -> None:
    net = seeded()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in net.parameters()}

    def update(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad(set_to_none=to_none)

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    hook, _ = hooked(make_hook, net)
    for batch in range(2):
        loss_of(net, batch).backward()
    gradient = closed(hook).tensor(GRADIENT)
    assert same(gradient.value(0), expected_gradient(1))
    assert same(gradient.value(1), expected_gradient(2))
    assert all(len(p._post_accumulate_grad_hooks) == 1 for p in net.parameters())


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_gradients_after_an_update_are_not_saved_in_its_step(make_hook: Any, make: Any) -> None:
    hook, net = hooked(make_hook)
    optimizers = [make(net.parameters(), lr=0.1, **{how: True}) for how in ("foreach", "fused")]
    by_hand = type("ByHand", (), {"step": lambda self: net.fc1.weight.data.mul_(0.9), "zero_grad": net.zero_grad})()
    expected = []
    for optimizer in [*optimizers, by_hand]:
        net.zero_grad()
        with hook.step():
            loss_of(net, 0).backward()
            loss_of(net, 1).backward()
            expected.append(array(net.fc1.weight.grad))
            optimizer.step()
            loss_of(net, 2).backward()
    gradient = closed(hook).tensor(GRADIENT)
    assert [same(gradient.value(step), each) for step, each in enumerate(expected)] == [True, True, False]


class TestSavedByACall:
    def test_save_gradients_saves_those_of_the_moment(self, make_hook: Any, out: str) -> None:
        hook, net = hooked(make_hook)
        loss_of(net).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        hook.save_gradients()
        expected = array(net.fc1.weight.grad)
        (7 * net.fc1.weight.sum()).backward()
        assert not same(net.fc1.weight.grad, expected)
        hook.close()
        assert same(create_trial(out).tensor(GRADIENT).value(0), expected)

    def test_save_gradients_saves_those_of_the_named_model(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook)
        other = seeded(lambda: nn.Linear(64, 10))
        hook.register_module(other)
        with hook.step():
            loss_of(net).backward()
            hook.save_gradients(net)
            expected = array(net.fc1.weight.grad)
            (loss_of(net) + loss_of(other)).backward()
        trial = closed(hook)
        assert same(trial.tensor(GRADIENT).value(0), expected)
        assert same(trial.tensor("gradient/Linear_weight").value(0), array(other.weight.grad))

    def test_save_gradients_saves_only_at_due_steps(self, make_hook: Any, out: str) -> None:
        hook, net = hooked(make_hook, save_config={"save_interval": 2})
        hook.save_gradients()
        for _ in range(3):
            net.zero_grad()
            loss_of(net).backward()
            hook.save_gradients()
        hook.close()
        assert create_trial(out).tensor(GRADIENT).steps() == [0, 2]

    @pytest.mark.usefixtures("lenient")
    @pytest.mark.parametrize("value", ["generator", 5, nn.Linear(2, 2)], ids=["a name", "a number", "another model"])
    def test_save_gradients_of_another_value_has_no_effect(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture, value: Any
    ) -> None:
        hook, net = hooked(make_hook)
        loss_of(net).backward()
        expected = array(net.fc1.weight.grad)
        nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        hook.save_gradients(value)
        assert hook.recorder.active
        hook.close()
        assert [message[:43] for message in caplog.messages] == ["save_gradients had no effect: save_gradient"]
        assert same(create_trial(out).tensor(GRADIENT).value(0), expected)


@pytest.mark.usefixtures("nothing_is_compiled")
class TestAtStepsAtWhichNothingIsDue:
    def test_parameters_have_no_callbacks(self, make_hook: Any, out: str) -> None:
        hook, net = hooked(make_hook, save_config={"save_interval": 2})
        counts = []
        for _ in range(4):
            loss = loss_of(net)
            counts.append(len(net.fc1.weight._post_accumulate_grad_hooks))
            loss.backward()
        hook.close()
        assert counts == [1, 0, 1, 0]
        assert create_trial(out).tensor(GRADIENT).steps() == [0, 2]

    def test_callbacks_come_back_before_those_of_the_user(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook, save_config={"save_interval": 2})
        loss_of(net).backward()
        net(batches(1)[0][0])
        net.fc1.weight.register_post_accumulate_grad_hook(lambda parameter: setattr(parameter, "grad", None))
        net.zero_grad()
        loss_of(net).backward()
        assert net.fc1.weight.grad is None
        assert same(closed(hook).tensor(GRADIENT).value(2), expected_gradient())

    def test_a_model_that_ran_at_one_has_gradients_at_the_next_step(self, make_hook: Any) -> None:
        first, second = seeded(), nn.Linear(10, 1)
        hook, _ = hooked(make_hook, first, save_config={"save_interval": 2, "start_step": 1, "save_steps": [1]})
        hook.register_module(second)
        second(first(batches(1)[0][0])).sum().backward()
        gradient = array(first.fc1.weight.grad)
        assert same(closed(hook).tensor(GRADIENT).value(1), gradient)


class TestScaled:
    def train(self, net: Any, scaler: Any, after_backward: Any = lambda: None) -> list[Any]:
        """Train with a scaled loss, and return the gradients that the scaler passes to the optimizer."""
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        seen = []
        for batch in range(3):
            optimizer.zero_grad()
            scaler.scale(loss_of(net, batch)).backward()
            after_backward()
            scaler.unscale_(optimizer)
            seen.append(array(net.fc1.weight.grad))
            scaler.step(optimizer)
            scaler.update(1000.0)
        return seen

    def test_scaled_gradients_are_saved_as_the_optimizer_gets_them(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024)
        hook.register_scaler(scaler)
        expected = self.train(net, scaler)
        gradient = closed(hook).tensor(GRADIENT)
        assert all(same(gradient.value(step), each) for step, each in enumerate(expected))

    def test_scaled_gradients_are_unscaled_once(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024)
        hook.register_scaler(scaler)
        expected = self.train(net, scaler, hook.save_gradients)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        optimizer.zero_grad()
        scaler.scale(loss_of(net)).backward()
        scaler.unscale_(optimizer)
        hook.save_gradients()
        expected.append(array(net.fc1.weight.grad))
        gradient = closed(hook).tensor(GRADIENT)
        assert all(same(gradient.value(step), each) for step, each in enumerate(expected))

    def test_gradients_of_a_scaler_that_is_off_or_new_are_not_changed(self, make_hook: Any, out: str) -> None:
        hook, net = hooked(make_hook)
        for scaler in (torch.amp.GradScaler("cpu", enabled=False), torch.amp.GradScaler("cpu")):
            hook.register_scaler(scaler)
            net.zero_grad()
            loss_of(net).backward()
        hook.close()
        assert same(create_trial(out).tensor(GRADIENT).value(1), array(net.fc1.weight.grad))

    def test_a_value_that_is_not_a_scaler_is_refused(self, make_hook: Any) -> None:
        with pytest.raises(ConfigurationError, match="GradScaler"):
            make_hook().register_scaler(1024)


class TestSwapped:
    @pytest.fixture(autouse=True)
    def swap(self) -> Any:
        torch.__future__.set_swap_module_params_on_conversion(True)
        yield
        torch.__future__.set_swap_module_params_on_conversion(False)

    @pytest.mark.parametrize("closed", [False, True])
    def test_parameters_are_swapped_as_without_a_hook(self, make_hook: Any, closed: bool) -> None:
        hook, net = hooked(make_hook, save_all=True)
        train(net, 1)
        if closed:
            hook.close()
        torch.utils.swap_tensors(net.fc1.weight, nn.Parameter(torch.zeros(16, 64)))
        assert not net.fc1.weight.any()
        net.load_state_dict(Net().state_dict())
        net.double()
        assert net.fc1.weight.dtype == torch.float64

    def test_gradients_are_saved_after_a_swap(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook)
        net.double().load_state_dict(Net().double().state_dict())
        for _ in range(2):
            net.zero_grad()
            x, y = batches(1)[0]
            nn.functional.cross_entropy(net(x.double()), y).backward()
        trial = closed(hook)
        assert same(trial.tensor(GRADIENT).value(0), array(net.fc1.weight.grad))
        assert same(trial.tensor("Net_fc1.weight").value(1), array(net.fc1.weight))


class TestExchanged:
    def test_gradients_through_tensors_that_functional_call_exchanges_are_saved(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook)
        (x, y), (later_x, later_y) = batches(2)
        parameters = dict(net.named_parameters())
        gradients = torch.autograd.grad(nn.functional.cross_entropy(net(x), y), parameters.values(), create_graph=True)
        fast = {name: each - 0.1 * of for (name, each), of in zip(parameters.items(), gradients, strict=True)}
        outer = nn.functional.cross_entropy(torch.func.functional_call(net, fast, later_x), later_y)
        torch.func.functional_call(net, {name: each.detach() for name, each in fast.items()}, x)
        outer.backward()
        trial = closed(hook)
        assert same(trial.tensor("Net_fc1.weight").value(1), array(fast["fc1.weight"]))
        assert same(trial.tensor(GRADIENT).value(2), array(net.fc1.weight.grad))

    def test_callbacks_of_the_user_on_an_exchanged_parameter_stay(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook)
        train(net, 1)
        net.fc1.weight = nn.Parameter(net.fc1.weight.detach().clone())
        seen = []
        net.fc1.weight.register_post_accumulate_grad_hook(lambda parameter: seen.append(array(parameter.grad)))
        loss_of(net).backward()
        assert same(closed(hook).tensor(GRADIENT).value(1), seen[0])

    def test_gradients_have_the_new_name_of_a_parametrized_weight(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook)
        train(net, 1)
        parametrizations.weight_norm(net.fc1)
        train(net, 1)
        trial = closed(hook)
        at_1 = {name for name in trial.tensor_names(step=1) if "fc1.weight" in name or "parametrizations" in name}
        originals = [f"Net_fc1.parametrizations.weight.original{i}" for i in range(2)]
        assert at_1 == {*originals, *(f"gradient/{name}" for name in originals)}

    def test_gradients_have_the_new_name_of_the_same_parameter(self, make_hook: Any) -> None:
        class Twice(nn.Module):
            def forward(self, x: Any) -> Any:
                return 2 * x

        hook, net = hooked(make_hook)
        train(net, 1)
        weight = net.fc1.weight
        nn.utils.parametrize.register_parametrization(net.fc1, "weight", Twice())
        assert net.fc1.parametrizations.weight.original is weight
        train(net, 1)
        trial = closed(hook)
        assert trial.tensor(GRADIENT).steps() == [0]
        name = "gradient/Net_fc1.parametrizations.weight.original"
        assert same(trial.tensor(name).value(1), array(weight.grad))

    def test_gradients_of_a_removed_module_are_not_the_models(self, make_hook: Any) -> None:
        net = seeded(lambda: nn.Sequential(nn.Linear(64, 10), nn.Linear(10, 10)))
        hook, _ = hooked(make_hook, net)
        train(net, 1)
        last = net.pop(1)
        x, _ = batches(1)[0]
        last(net(x)).sum().backward()
        trial = closed(hook)
        assert trial.tensor("gradient/Sequential_0.weight").steps() == [0, 1]
        assert trial.tensor("gradient/Sequential_1.weight").steps() == [0]

    def test_gradients_of_lazy_modules_are_saved_from_the_first_step_on(self, make_hook: Any) -> None:
        net = seeded(lambda: nn.Sequential(nn.LazyLinear(16), nn.ReLU(), nn.LazyLinear(10)))
        hook, _ = hooked(make_hook, net)
        loss_of(net).backward()
        trial = closed(hook)
        for path in ("0.weight", "2.bias", "2.weight"):
            assert same(trial.tensor(f"gradient/Sequential_{path}").value(0), array(net.get_parameter(path).grad))
        assert np.array_equal(trial.tensor("Sequential_2.weight").value(0), array(net[2].weight))


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_contains_the_share_of_the_closure_of_the_optimizers_step(make_hook: Any, fused: bool) -> None:
    hook, net = hooked(make_hook)
    optimizer = torch.optim.AdamW(net.parameters(), fused=fused)
    hook.register_optimizer(optimizer)
    expected = []

    def closure() -> Any:
        loss = loss_of(net, 1)
        loss.backward()
        expected.append(array(net.fc1.weight.grad))
        return loss

    for _ in range(2):
        optimizer.zero_grad()
        with hook.step():
            loss_of(net, 0).backward()
            optimizer.step(closure)
            loss_of(net, 2).backward()  # after the update: another model's loss
    gradient = closed(hook).tensor(GRADIENT)
    assert all(same(gradient.value(step), each) for step, each in enumerate(expected))


def test_a_gradient_of_an_lbfgs_step_is_that_before_its_first_update(make_hook: Any, out: str) -> None:
    hook, net = hooked(make_hook)
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
    expected = []

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(net)
        loss.backward()
        expected.append(array(net.fc1.weight.grad))
        return loss

    with hook.step():
        optimizer.step(closure)
    hook.close()
    assert len(expected) == 3
    assert same(create_trial(out).tensor(GRADIENT).value(0), expected[0])


@pytest.mark.parametrize("how", ["backward", "assigned", "saved by a call"])
def test_gradients_that_never_arrive_are_named(make_hook: Any, caplog: pytest.LogCaptureFixture, how: str) -> None:
    hook, net = hooked(make_hook)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in range(3):
        loss = loss_of(net, batch)
        hook.record_tensor_value("loss", loss)
        if how == "backward":
            optimizer.zero_grad()
            loss.backward()
        else:
            for parameter, gradient in zip(
                net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True
            ):
                parameter.grad = gradient
        if how == "saved by a call":
            hook.save_gradients()
        optimizer.step()
    hook.close()
    texts = [each.getMessage() for each in caplog.records if each.name == "tensortrial.hooks"]
    assert len(texts) == (how == "assigned")
    assert all("no gradient of Net_fc1.weight has arrived" in text for text in texts)
