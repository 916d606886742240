"""What else is done with a model while it is hooked: it is copied, saved, run in threads, wrapped and compiled."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from training import Net, batches, run, seeded, train  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.hooks.torch_taps import BeginStep  # noqa: E402

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


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the hook logged; torch traces its compiler through the same log."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("tensortrial")]


class TestCopies:
    @pytest.mark.parametrize("how", COPIES)
    def test_run_and_are_not_hooked(self, make_hook: Any, out: str, how: str) -> None:
        hook, net, loss = hooked(make_hook)
        train(net, 1, loss)
        twin = COPIES[how](net)
        assert train(twin, 3) == train(net, 3)
        hook.close()
        assert create_trial(out).tensor("Net_output_0").steps() == [0, 1, 2, 3]
        assert not any(isinstance(tap, BeginStep) for tap in twin._forward_pre_hooks.values())

    def test_can_be_hooked_in_turn(self, make_hook: Any, out: str) -> None:
        hook, net, loss = hooked(make_hook)
        twin = copy.deepcopy(net)
        hook.register_module(twin)
        train(twin, 1, loss)
        train(net, 1, loss)
        hook.close()
        trial = create_trial(out)
        assert trial.tensor("Net_1_output_0").steps() == [0]
        assert trial.tensor("Net_output_0").steps() == [1]

    def test_load_where_this_package_is_missing(self, make_hook: Any, tmp_path: Path) -> None:
        _, net, loss = hooked(make_hook, nn.Sequential(nn.Linear(64, 10)))
        train(net, 1, loss)
        torch.save(net, tmp_path / "net.pt")
        program = """if True:
            import sys, torch
            sys.modules["tensortrial"] = None
            net = torch.load("net.pt", weights_only=False)
            assert net(torch.zeros(2, 64)).shape == (2, 10)
        """
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)

    def test_state_is_without_traces(self, make_hook: Any) -> None:
        _, net, _ = hooked(make_hook)
        assert list(net.state_dict()) == list(Net().state_dict())


class TestThreads:
    def test_may_run_a_model_at_once(self, make_hook: Any, out: str) -> None:
        hook, net, _ = hooked(make_hook)
        barrier, failures = threading.Barrier(4), []

        def work() -> None:
            try:
                barrier.wait(10)
                for x, _ in batches(10):
                    net(x).sum().backward()
                    hook.save_scalar("x", 1)
            except Exception as exc:
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


class TestCompiled:
    @pytest.fixture(autouse=True)
    def fresh(self) -> None:
        torch.compiler.reset()

    def test_before_it_is_registered(self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture) -> None:
        plain = seeded()
        hook, net, loss = hooked(make_hook, torch.compile(plain, backend="aot_eager", fullgraph=True))
        assert train(net, 4, loss) == pytest.approx(train(seeded(), 4), rel=1e-5)
        hook.close()
        self.check(out)
        assert ["Net is compiled" in text for text in warnings(caplog)] == [True]

    def test_in_place_before_it_is_registered(self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture) -> None:
        net = seeded()
        net.compile(backend="aot_eager", fullgraph=True)
        hook, net, loss = hooked(make_hook, net)
        assert train(net, 4, loss) == pytest.approx(train(seeded(), 4), rel=1e-5)
        twin = copy.deepcopy(net)
        train(twin, 1)
        hook.close()
        self.check(out)
        assert ["Net is compiled" in text for text in warnings(caplog)] == [True]

    def check(self, out: str) -> None:
        trial = create_trial(out)
        for name in (LOSS, "Net_fc1.weight", "gradient/Net_fc1.weight", "Net_input_0", "Net_output_0"):
            assert trial.tensor(name).steps() == [0, 1, 2, 3], name
        assert not trial.has_tensor("fc1_output_0")

    @pytest.mark.parametrize("in_place", [True, False])
    def test_after_it_is_registered_is_told_at_once(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture, in_place: bool
    ) -> None:
        hook, net, loss = hooked(make_hook)
        if in_place:
            net.compile(backend="aot_eager", fullgraph=True)
            compiled = net
        else:
            compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
        assert train(compiled, 1, loss) == pytest.approx(train(seeded(), 1), rel=1e-5)
        assert ["nothing will be saved of Net" in text for text in warnings(caplog)] == [True]
        train(compiled, 3, loss)
        hook.close()
        assert len(warnings(caplog)) == 1

    def test_a_part_of_it(self, make_hook: Any, out: str) -> None:
        net = seeded()
        net.fc1 = torch.compile(net.fc1, backend="aot_eager")
        hook, net, loss = hooked(make_hook, net)
        train(net, 2, loss)
        hook.close()
        trial = create_trial(out)
        for name in ("fc1_output_0", "fc1_input_0", "fc2_output_0", "Net_fc1.weight", "gradient/Net_fc1.weight"):
            assert trial.tensor(name).steps() == [0, 1], name

    def test_a_copy_of_a_hooked_model(self, make_hook: Any) -> None:
        _, net, loss = hooked(make_hook)
        train(net, 1, loss)
        twin = copy.deepcopy(net)
        losses = train(torch.compile(twin, backend="aot_eager", fullgraph=True), 2)
        assert losses == pytest.approx(train(copy.deepcopy(net), 2))

    @pytest.mark.slow
    def test_with_the_real_compiler(self, tmp_path: Path) -> None:
        program = """
            import torch
            from training import seeded, train
            import tensortrial.hooks.pytorch as tt

            hook = tt.Hook("run", save_config=tt.SaveConfig(save_interval=1), save_all=True)
            net = torch.compile(seeded(), fullgraph=True)
            hook.register_module(net)
            train(net, 50)
        """
        done = run(program, tmp_path)
        assert done.returncode == 0, done.stderr
        trial = create_trial(tmp_path / "run")
        assert trial.tensor("gradient/Net_fc1.weight").steps() == list(range(50))
        assert trial.tensor("Net_output_0").steps() == list(range(50))


class TestModules:
    def test_registered_with_the_loss_inside(self, make_hook: Any, out: str) -> None:
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
        hook.close()
        assert create_trial(out).tensor(LOSS).steps() == [0, 1]

    def test_of_several_losses(self, make_hook: Any, out: str) -> None:
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
    def test_with_checkpointed_activations_are_saved_once(
        self, make_hook: Any, out: str, reentrant: bool, whole: bool
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
        hook.close()
        trial = create_trial(out)
        assert trial.steps() == [0, 1]
        assert trial.tensor("fc1_output_0").steps() == [0, 1]
        assert trial.tensor(f"gradient/{'Net' if whole else 'Checkpointed'}_fc1.weight").steps() == [0, 1]
        assert not trial.has_tensor("fc1_output_1")
