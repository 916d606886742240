"""Steps that are run again: training does not notice, and other bits are found."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.gloo import launch  # noqa: E402
from support.training import batches  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.diagnosis import diagnose  # noqa: E402
from tensortrial.errors import ConfigurationError  # noqa: E402
from tensortrial.rules import SilentCorruption, invoke_rule  # noqa: E402


class Flipping(nn.Module):
    """Changes one bit of one number in some of its calls, as a faulty processor would.

    The bit is large enough (2**-7 of the number) that no processor's rounding hides it from a gradient.
    """

    def __init__(self, *calls: int) -> None:
        super().__init__()
        self.calls, self.wrong = itertools.count(), calls

    def forward(self, x: Any) -> Any:
        if next(self.calls) not in self.wrong:
            return x
        changed = x.clone()
        changed.detach().view(torch.int32).view(-1)[x.abs().argmax()] ^= 1 << 16
        return changed


def model(*wrong: int) -> nn.Sequential:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)
    return nn.Sequential(
        nn.Linear(64, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), Flipping(*wrong), nn.Linear(16, 10)
    )


def train(net: nn.Module, out: str, replays: bool = True, steps: int = 6, **options: Any) -> tt.Hook:
    hook = tt.Hook(out, save_all=True, save_config=tt.SaveConfig(save_interval=1))
    hook.register_module(net)
    replay = tt.Replay(hook, net, **options) if replays else lambda compute: compute()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for x, y in batches(steps):

        def compute(x: Any = x, y: Any = y) -> Any:
            noisy = x + random.random() + np.random.rand()
            loss = nn.functional.cross_entropy(net(noisy), y)
            loss.backward()
            return loss

        optimizer.zero_grad()
        assert replay(compute).requires_grad
        optimizer.step()
    hook.close()
    return hook


def seeded_train(out: str, **options: Any) -> dict[str, Any]:
    net = model()
    train(net, out, **options)
    return {**net.state_dict(), "random": torch.rand(3)}


@pytest.mark.parametrize("options", [{"every": 1}, {"every": 3, "times": 2}])
def test_training_goes_on_as_without_replays(tmp_path: Path, options: dict[str, int]) -> None:
    plain = seeded_train(str(tmp_path / "plain"), replays=False)
    replayed = seeded_train(str(tmp_path / "replayed"), **options)
    assert all(torch.equal(plain[name], replayed[name]) for name in plain)
    one, two = (create_trial(tmp_path / name) for name in ("plain", "replayed"))
    for name in one.tensor_names():
        assert two.tensor(name).steps() == one.tensor(name).steps()
        for step in one.tensor(name).steps():
            assert np.array_equal(two.tensor(name).value(step), one.tensor(name).value(step)), name
    replays = [name for name in two.tensor_names() if name not in one.tensor_names()]
    assert {"replay/result_0", "replay/gradient/Sequential_0.weight", "replay/Sequential_1.running_mean"} <= set(
        replays
    )
    for name in replays:
        steps = two.tensor(name).steps()
        assert steps == list(range(0, 6, options["every"]))
        assert [float(two.tensor(name).value(step)) for step in steps] == [0] * len(steps)


def test_the_rule_finds_no_difference_on_a_processor_that_works(tmp_path: Path) -> None:
    seeded_train(str(tmp_path / "run"), every=2)
    assert not invoke_rule(SilentCorruption(create_trial(tmp_path / "run")))


def test_one_wrong_bit_is_found_at_its_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    train(model(7), str(tmp_path / "run"), every=1)  # the replay of the step 3: two calls a step
    assert "other bits" in caplog.text
    findings = invoke_rule(SilentCorruption(create_trial(tmp_path / "run")))
    assert {finding.step for finding in findings} == {3}
    assert "replay/gradient/Sequential_0.weight" in {finding.tensor for finding in findings}
    assert "replay/Sequential_1.running_mean" not in {finding.tensor for finding in findings}  # before the fault
    problems = diagnose(str(tmp_path / "run")).problems
    assert [each.step for each in problems if each.rule == "SilentCorruption"] == [3]


def test_the_wrong_run_of_three_stands_alone(tmp_path: Path) -> None:
    train(model(0), str(tmp_path / "run"), steps=1, times=2)
    assert float(create_trial(tmp_path / "run").tensor("replay/gradient/Sequential_0.weight").value(0)) == 1


def test_a_nan_is_no_difference(tmp_path: Path) -> None:
    net = model()
    with torch.no_grad():
        net[0].weight[0, 0] = torch.nan
    train(net, str(tmp_path / "run"), steps=2, every=1)
    assert not invoke_rule(SilentCorruption(create_trial(tmp_path / "run")))


def test_an_optimizer_inside_is_a_warning_and_steps_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Linear(2, 1)
    hook = tt.Hook(str(tmp_path / "run"))
    hook.register_module(net)
    replay, steps = tt.Replay(hook, net, every=1), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def compute() -> None:
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        steps.append(1)

    for _ in range(3):
        replay(compute)
    hook.close()
    assert len(steps) == 3
    assert caplog.text.count("leave the optimizer's step out of it") == 1


def test_a_step_that_cannot_run_again_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Linear(2, 1)
    hook = tt.Hook(str(tmp_path / "run"))
    hook.register_module(net)
    replay, data = tt.Replay(hook, net), iter([torch.ones(1, 2)])
    loss = replay(lambda: net(next(data)).sum())
    loss.backward()
    gradient = net.weight.grad.clone()
    assert torch.equal(gradient, torch.ones(1, 2))
    assert "StopIteration" in caplog.text
    assert hook.recorder.active
    hook.close()


def test_an_error_of_training_is_raised(tmp_path: Path) -> None:
    hook, net = tt.Hook(str(tmp_path / "run")), nn.Linear(2, 1)
    with pytest.raises(ZeroDivisionError):
        tt.Replay(hook, net)(lambda: 1 / 0)
    hook.close()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "takes the models"),
        (("net",), {}, "torch.nn.Module"),
        ((nn.Linear(1, 1),), {"every": 0}, "every must be a whole number above 0, got 0"),
        ((nn.Linear(1, 1),), {"times": 1.5}, "times must be a whole number above 0, got 1.5"),
    ],
)
def test_wrong_arguments_of_replay_are_named(
    tmp_path: Path, arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    hook = tt.Hook(str(tmp_path / "run"))
    with pytest.raises(ConfigurationError, match=message):
        tt.Replay(hook, *arguments, **options)
    hook.close()


def test_a_replay_without_a_hook_is_named() -> None:
    with pytest.raises(ConfigurationError, match="takes a hook for PyTorch, got a Linear"):
        tt.Replay(nn.Linear(1, 1), nn.Linear(1, 1))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler imports what is deprecated
def test_a_compiled_model_is_replayed(tmp_path: Path) -> None:
    # A replay runs what was compiled, whatever compiled it; C++ would take half a minute.
    net = torch.compile(nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)), backend="aot_eager")
    train(net, str(tmp_path / "run"), every=2)
    trial = create_trial(tmp_path / "run")
    assert trial.tensor("replay/gradient/Sequential_0.weight").steps() == [0, 2, 4]
    assert trial.tensor("2_output_0").steps() == list(range(6))
    assert not invoke_rule(SilentCorruption(trial))


@pytest.mark.slow
@pytest.mark.distributed
def test_workers_replay_their_collectives_together(tmp_path: Path) -> None:
    program = """
    from torch.nn.parallel import DistributedDataParallel
    net = DistributedDataParallel(seeded())
    hook, loss = begin(net)  # one worker saves
    replay = tt.Replay(hook, net, every=2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches(8)[rank::2]:
        def compute():
            loss(net(x), y).backward()
        optimizer.zero_grad()
        replay(compute)
        optimizer.step()
    """
    launch(program, tmp_path)
    trial = create_trial(tmp_path / "run")
    name = "replay/gradient/Net_fc1.weight"
    assert [(step, float(trial.tensor(name).value(step))) for step in trial.tensor(name).steps()] == [(0, 0), (2, 0)]
