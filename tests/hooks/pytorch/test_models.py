"""Registered models that are copied, saved, run in threads, or wrapped."""

from __future__ import annotations

import copy
import io
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.missing import without  # noqa: E402
from support.training import Net, batches, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.hooks.pytorch.callbacks import BeginStep  # noqa: E402

LOSS = "CrossEntropyLoss_output_0"


def hooked(make_hook: Any, net: Any = None, **options: Any) -> tuple[Any, Any, Any]:
    hook, net, loss = (
        make_hook(**{"save_all": True, **options}),
        seeded() if net is None else net,
        nn.CrossEntropyLoss(),
    )
    hook.register_module(net)
    hook.register_loss(loss)
    return hook, net, loss


def saved(net: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda net: pickle.loads(pickle.dumps(net)),
    "save": saved,
    "deepcopy, then save": lambda net: saved(copy.deepcopy(net)),
    "deepcopy twice": lambda net: copy.deepcopy(copy.deepcopy(net)),
}


class TestCopies:
    @pytest.mark.parametrize("how", COPIES)
    def test_copies_of_a_model_run_without_a_hook(self, make_hook: Any, out: str, how: str) -> None:
        hook, net, loss = hooked(make_hook)
        train(net, 1, loss)
        twin = COPIES[how](net)
        assert train(twin, 3) == train(net, 3)
        hook.close()
        assert create_trial(out).tensor("Net_output_0").steps() == [0, 1, 2, 3]
        assert not any(isinstance(each, BeginStep) for each in twin._forward_pre_hooks.values())

    def test_copies_of_a_model_can_be_registered(self, make_hook: Any) -> None:
        hook, net, loss = hooked(make_hook)
        twin = copy.deepcopy(net)
        hook.register_module(twin)
        train(twin, 1, loss)
        train(net, 1, loss)
        trial = closed(hook)
        assert trial.tensor("Net_1_output_0").steps() == [0]
        assert trial.tensor("Net_output_0").steps() == [1]

    def test_copies_of_a_model_load_without_this_package(
        self, make_hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, net, loss = hooked(make_hook, nn.Sequential(nn.Linear(64, 10)))
        train(net, 1, loss)
        torch.save(net, tmp_path / "net.pt")
        without(monkeypatch, *(name for name in sys.modules if f"{name}.".startswith("tensortrial.")))
        twin = torch.load(tmp_path / "net.pt", weights_only=False)
        assert twin(torch.zeros(2, 64)).shape == (2, 10)

    def test_the_state_of_a_model_has_no_traces_of_a_hook(self, make_hook: Any) -> None:
        _, net, _ = hooked(make_hook)
        assert list(net.state_dict()) == list(Net().state_dict())


class TestThreads:
    def test_threads_may_run_a_model_at_the_same_time(self, make_hook: Any, out: str) -> None:
        hook, net, _ = hooked(make_hook)
        barrier, failures = threading.Barrier(4), []

        def work() -> None:
            try:
                barrier.wait(10)
                for x, _ in batches(10):
                    net(x).sum().backward()
                    hook.save_scalar("x", 1)
            except Exception as exc:  # noqa: BLE001 - the test fails on it
                failures.append(exc)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        hook.close()
        assert failures == []
        trial = create_trial(out)
        # A step that another thread ends at once may be empty, and leaves no trace.
        assert 30 <= len(trial.steps()) <= 40
        assert len(trial.tensor("Net_fc1.weight").steps()) > 0


class TestModules:
    def test_modules_losses_and_optimizers_that_cannot_be_compared_are_saved(self, make_hook: Any) -> None:
        def refuse(one: Any, other: Any) -> bool:
            raise TypeError("no comparison")

        def incomparable(kind: type) -> Any:
            return type(kind.__name__, (kind,), {"__eq__": refuse, "__hash__": object.__hash__})

        hook, net, loss = make_hook(save_all=True), seeded(incomparable(Net)), incomparable(nn.CrossEntropyLoss)()
        net.relu = incomparable(nn.ReLU)()
        optimizer = incomparable(torch.optim.SGD)(net.parameters(), lr=0.1)
        for _ in range(2):
            hook.register_module(net)
            hook.register_loss(loss)
            hook.register_optimizer(optimizer)
        hook.get_collection("inner").add_module_tensors(net.relu)
        for x, y in batches(2):
            loss(net(x), y).backward()
            optimizer.step()
        trial = closed(hook)
        assert trial.tensor_names(collection="inner") == ["relu_output_0"]
        rate = "hyperparameters/SGD/group_0/lr"
        for name in ("Net_fc1.weight", "gradient/Net_fc1.weight", "relu_output_0", LOSS, rate):
            assert trial.tensor(name).steps() == [0, 1]

    def test_a_loss_may_be_inside_the_registered_model(self, make_hook: Any) -> None:
        class WithLoss(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net, self.criterion = Net(), nn.CrossEntropyLoss()

            def forward(self, x: Any, y: Any) -> Any:
                return self.criterion(self.net(x), y)

        hook, net = make_hook(), seeded(WithLoss)
        hook.register_module(net)
        hook.register_loss(net.criterion)
        for x, y in batches(2):
            net(x, y).backward()
        assert closed(hook).tensor(LOSS).steps() == [0, 1]

    def test_several_losses_may_be_registered(self, make_hook: Any, out: str) -> None:
        hook, net, first = hooked(make_hook, save_all=False)
        second, other = nn.CrossEntropyLoss(), nn.MSELoss()
        for loss in (first, second, other):
            hook.register_loss(loss)
        x, y = batches(1)[0]
        logits = net(x)
        first(logits, y) + second(logits, y) + other(logits, logits)
        hook.close()
        expected = ["CrossEntropyLoss_1_output_0", LOSS, "MSELoss_output_0"]
        assert create_trial(out).tensor_names(collection="losses") == expected
        assert isinstance(hook, tt.Hook)

    @pytest.mark.parametrize("reentrant", [True, False])
    @pytest.mark.parametrize("whole", [True, False], ids=["whole", "part"])
    def test_modules_with_checkpointed_activations_are_saved_once(
        self, make_hook: Any, reentrant: bool, whole: bool
    ) -> None:
        class Checkpointed(Net):
            def forward(self, x: Any) -> Any:
                hidden = checkpoint(self.fc1, x, use_reentrant=reentrant)
                return self.fc2(self.relu(hidden))

        class Whole(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = Net()

            def forward(self, x: Any) -> Any:
                return checkpoint(self.net, x, use_reentrant=reentrant)

        outer = seeded(Whole if whole else Checkpointed)
        hook, _, loss = hooked(make_hook, outer.net if whole else outer)
        (x, y) = batches(1)[0]
        for _ in range(2):
            loss(outer(x.clone().requires_grad_()), y).backward()
        trial = closed(hook)
        assert trial.steps() == [0, 1]
        assert trial.tensor("fc1_output_0").steps() == [0, 1]
        assert trial.tensor(f"gradient/{'Net' if whole else 'Checkpointed'}_fc1.weight").steps() == [0, 1]
        assert not trial.has_tensor("fc1_output_1")
