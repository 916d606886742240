"""The models that train in a script that knows nothing of hooks, and the steps of their training."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn.functional import mse_loss  # noqa: E402

from tensortrial import create_trial  # noqa: E402
from tensortrial.hooks.core import current_hook  # noqa: E402
from tensortrial.hooks.launch.launch import Launch  # noqa: E402
from tensortrial.hooks.pytorch import Hook, modes  # noqa: E402
from tensortrial.hooks.pytorch.launched.models import LaunchedModels  # noqa: E402

CALL, CONSTRUCT, BACKWARD = torch.nn.Module.__call__, torch.optim.Optimizer.__init__, torch.Tensor.backward


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """A launched process, and a function that ends it and opens its run."""
    monkeypatch.setenv("TENSORTRIAL_STRICT", "1")
    current_hook.set_hook(None)
    torch.manual_seed(0)
    launched = LaunchedModels(Launch("train", out_dir=str(tmp_path / "run")))
    launched.install()

    def finish() -> Any:
        current_hook.del_hook()
        return create_trial(str(tmp_path / "run"))

    yield finish
    current_hook.del_hook()
    launched.retire()
    assert (torch.nn.Module.__call__, torch.optim.Optimizer.__init__, torch.Tensor.backward) == (
        CALL,
        CONSTRUCT,
        BACKWARD,
    )


class Net(torch.nn.Module):
    def __init__(self, width: int = 1) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, width)

    def forward(self, x: Any) -> Any:
        return self.fc(x)


class Own(torch.nn.Module):
    """A loss of the script's own class."""

    def forward(self, x: Any) -> Any:
        return x.pow(2).mean()


def data(rows: int = 8) -> Any:
    return torch.rand(rows, 4)


def sgd(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train(model: Any, optimizer: Any, steps: int) -> None:
    for _ in range(steps):
        mse_loss(model(data()), torch.zeros(8, 1)).backward()
        optimizer.step()


def test_batches_that_accumulate_are_one_step_and_an_evaluation_is_apart(finished: Callable[[], Any]) -> None:
    model, criterion = Net(), torch.nn.MSELoss()
    optimizer, seen = sgd(model), []
    for _ in range(3):
        model.train()
        for _ in range(2):
            criterion(model(data()), torch.zeros(8, 1)).backward()
        seen.append(model.fc.weight.grad.clone().norm().item())
        optimizer.step()
        optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            for _ in range(2):
                model(data())
    trial = finished()
    assert trial.steps(modes.TRAIN) == [0, 1, 2]
    assert trial.steps(modes.EVAL) == [0, 1, 2, 3, 4, 5]
    assert trial.tensor("MSELoss_output_1").steps(modes.TRAIN) == [0, 1, 2]
    found = [trial.tensor("gradient/Net_fc.weight").reduction_value(step, "l2", modes.TRAIN) for step in range(3)]
    # Those of the second batch are the sums.
    np.testing.assert_allclose(found, seen, rtol=1e-5)
    assert trial.tensor("hyperparameters/SGD/group_0/lr").value(0, modes.TRAIN) == pytest.approx(0.1)


def test_updates_of_two_adversaries_are_one_step(finished: Callable[[], Any]) -> None:
    critic, maker = Net(), Net(4)
    critic_optimizer, maker_optimizer = sgd(critic), sgd(maker)
    for _ in range(4):
        critic(data()).mean().backward()
        with torch.no_grad():
            fake = maker(data())
        (-critic(fake).mean()).backward()
        critic_optimizer.step()
        critic_optimizer.zero_grad()
        critic(maker(data())).mean().backward()
        maker_optimizer.step()
        maker_optimizer.zero_grad()
    trial = finished()
    assert trial.steps() == trial.steps(modes.TRAIN) == [0, 1, 2, 3]
    assert trial.tensor("gradient/Net_fc.weight").steps(modes.TRAIN) == [0, 1, 2, 3]
    assert trial.tensor("gradient/Net_1_fc.weight").steps(modes.TRAIN) == [0, 1, 2, 3]


def test_an_optimizer_that_rests_is_not_waited_for(finished: Callable[[], Any]) -> None:
    first, second = Net(), Net()
    optimizer, resting = sgd(first), sgd(second)
    mse_loss(first(data()) + second(data()), torch.zeros(8, 1)).backward()
    train(first, optimizer, 25)
    resting.step()
    assert len(finished().steps(modes.TRAIN)) == 6


def test_a_model_that_no_optimizer_trains_is_not_saved(finished: Callable[[], Any]) -> None:
    teacher, student = Net(), torch.nn.Sequential(torch.nn.Linear(4, 1))
    optimizer = sgd(student)
    for _ in range(2):
        mse_loss(student(data()), teacher(data()).detach()).backward()
        optimizer.step()
    names = finished().tensor_names()
    assert "Sequential_0.weight" in names
    assert not [name for name in names if name.startswith("Net")]


@pytest.mark.parametrize("loss", ["module", "function"])
def test_a_model_that_the_script_updates_by_itself_is_saved_from_its_second_step_on(
    finished: Callable[[], Any], loss: str
) -> None:
    class Recurrent(Net):
        def forward(self, x: Any) -> Any:
            return super().forward(x).tanh()

    model, criterion = Recurrent(4), torch.nn.MSELoss() if loss == "module" else mse_loss
    frozen = Net().eval()
    gradients = []
    for _ in range(4):
        model.zero_grad()
        state = data()
        for _ in range(3):
            state = model(state)
        criterion(state, frozen(data()).expand(8, 4)).backward()
        gradients.append(model.fc.weight.grad.clone().numpy())
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)
        with torch.no_grad():
            model(data())
    trial = finished()
    assert trial.steps(modes.TRAIN) == [0, 1, 2]
    assert trial.steps(modes.EVAL) == [0, 1, 2]
    for step, gradient in enumerate(gradients[1:]):
        found = trial.tensor("gradient/Recurrent_fc.weight").reduction_value(step, "mean", mode=modes.TRAIN)
        np.testing.assert_allclose(found, gradient.mean(), rtol=1e-5)
    assert trial.tensor_names(collection="losses") == ["MSELoss_output_0" if loss == "module" else "loss_output_0"]
    assert not [name for name in trial.tensor_names() if "Net" in name]


def test_the_loss_of_a_function_is_what_backward_is_called_on(finished: Callable[[], Any]) -> None:
    model, losses = Net(), []
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for _ in range(3):
        loss = mse_loss(model(data()), torch.zeros(8, 1))
        losses.append(loss.item())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    trial = finished()
    assert trial.tensor_names(collection="losses") == ["loss_output_0"]
    found = [float(trial.tensor("loss_output_0").value(step, modes.TRAIN)) for step in range(3)]
    np.testing.assert_allclose(found, losses)
    assert trial.tensor("gradient/Net_fc.weight").reduction_value(0, "l2", modes.TRAIN) < 10


def test_a_loss_of_the_script_s_own_class_is_saved_from_the_first_step_on(finished: Callable[[], Any]) -> None:
    model, criterion = Net(), Own()
    optimizer, losses = sgd(model), []
    for _ in range(3):
        loss = criterion(model(data()))
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
    trial = finished()
    assert trial.tensor_names(collection="losses") == ["Own_output_0"]
    found = [float(trial.tensor("Own_output_0").value(step, modes.TRAIN)) for step in range(3)]
    np.testing.assert_allclose(found, losses)


def test_a_closure_of_an_optimizer_is_one_step(finished: Callable[[], Any]) -> None:
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = mse_loss(model(data()), torch.zeros(8, 1))
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert finished().steps(modes.TRAIN) == [0, 1, 2]


def test_a_model_that_trains_in_eval_mode_is_saved_in_mode_train(finished: Callable[[], Any]) -> None:
    model = Net().eval()
    train(model, sgd(model), 3)
    assert finished().steps(modes.TRAIN) == [0, 1]


@pytest.mark.parametrize("keeps_first", [False, True])
def test_a_later_optimizer_of_the_model_takes_the_place_of_the_first(
    finished: Callable[[], Any], keeps_first: bool
) -> None:
    model, kept = Net(), []
    for rate in (0.1, 0.01):
        optimizer = torch.optim.SGD(model.parameters(), lr=rate)
        kept += [optimizer] if keeps_first else []
        train(model, optimizer, 2)
        del optimizer
    trial = finished()
    assert trial.steps(modes.TRAIN) == [0, 1, 2, 3]
    assert trial.tensor("hyperparameters/SGD_1/group_0/lr").steps(modes.TRAIN) == [2, 3]


def test_a_second_training_is_logged_and_not_saved(
    finished: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        model = Net()
        train(model, sgd(model), 2)
    with caplog.at_level(logging.WARNING):
        assert finished().steps(modes.TRAIN) == [0, 1]
    assert "trains another model, which is not saved" in caplog.text


def test_a_hook_of_the_script_s_own_is_the_only_one(finished: Callable[[], Any], tmp_path: Path) -> None:
    model = Net()
    optimizer = sgd(model)
    hook = Hook(tmp_path / "own", save_config={"save_interval": 1})
    hook.register_module(model)
    train(model, optimizer, 2)
    hook.close()
    assert not (tmp_path / "run").exists()
    assert torch.nn.Module.__call__ is CALL


def test_a_hook_that_the_script_makes_later_ends_the_run(
    finished: Callable[[], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Net()
    optimizer = sgd(model)
    train(model, optimizer, 2)
    hook = Hook(tmp_path / "own")
    train(model, optimizer, 2)
    hook.close()
    trial = create_trial(str(tmp_path / "run"))
    assert trial.loaded_all_steps
    assert trial.steps(modes.TRAIN) == [0, 1]
    assert "the script makes a hook of its own" in caplog.text


def test_modules_are_called_as_ever_after_the_first_update(finished: Callable[[], Any]) -> None:
    model = Net()
    train(model, sgd(model), 2)
    assert torch.nn.Module.__call__ is CALL


def test_an_exception_in_a_model_is_the_script_s(finished: Callable[[], Any]) -> None:
    model = Net()
    optimizer = sgd(model)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model(torch.rand(1, 3))
    mse_loss(model(data()), torch.zeros(8, 1)).backward()
    optimizer.step()
    assert finished().steps(modes.TRAIN)


def test_a_folder_that_holds_a_run_is_logged_and_training_goes_on(
    finished: Callable[[], Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    earlier = Hook(tmp_path / "run")
    earlier.save_scalar("x", 1.0)
    earlier.close()
    current_hook.set_hook(None)
    model = Net()
    train(model, sgd(model), 2)
    assert "nothing of this training is saved" in caplog.text
    assert "holds a run already" in caplog.text
    assert finished().tensor_names() == ["x"]


@pytest.mark.parametrize("way", ["function", "method"])
def test_a_compiled_model_is_compiled_once_and_saved(finished: Callable[[], Any], way: str) -> None:
    from torch._dynamo import testing

    torch._dynamo.reset()
    counter = testing.CompileCounter()
    model: Any = Net()
    if way == "method":
        model.compile(backend=counter, fullgraph=True)
    else:
        model = torch.compile(model, backend=counter, fullgraph=True)
    train(model, sgd(model), 4)
    trial = finished()
    assert trial.steps(modes.TRAIN) == [0, 1, 2, 3]
    assert trial.tensor("gradient/Net_fc.weight").steps(modes.TRAIN) == [0, 1, 2, 3]
    assert counter.frame_count <= 2
