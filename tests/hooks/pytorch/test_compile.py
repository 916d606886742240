"""Models, and parts of them, that torch.compile compiles: all tensors are captured, without a graph break."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.limits import set_limits  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.programs import run  # noqa: E402
from support.torch_capture import compile_as_an_older_torch, forget_compiled_code  # noqa: E402
from support.training import Net, batches, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import TrainingStopped  # noqa: E402
from tensortrial.format.schema import STOP_FILE  # noqa: E402
from tensortrial.hooks.pytorch.compile import Switch, switch  # noqa: E402

EVERY_THIRD = tt.SaveConfig(save_interval=3)

# When torch compiles a second part of a model, it reads gradients that are None, and ignores the warning.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    forget_compiled_code()
    counters.clear()
    yield
    torch.compiler.reset()


@pytest.fixture(params=["operator", "output"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture by the operator, as on a CPU, or by outputs of the graph, as on an accelerator."""
    monkeypatch.setenv("TENSORTRIAL_COMPILED_CAPTURE", request.param)


# Two backends, which generate no code. The quick one runs the graphs as they are: that is enough where the subject is
# what the compiler traces. The whole one also traces their backward, and removes and reorders what it may.
QUICK, WHOLE = "eager", "aot_eager"
_backend = ContextVar("_backend", default=QUICK)


@pytest.fixture(params=[QUICK, pytest.param(WHOLE, marks=pytest.mark.slow)], ids=["quick", "whole"])
def backends(request: Any) -> Iterator[None]:
    """Compile by the quick backend, and in the slow tests by the whole one, where a test names none."""
    token = _backend.set(request.param)
    yield
    _backend.reset(token)


by_both_backends = pytest.mark.usefixtures("backends")


def compiled(what: Any, backend: str | None = None) -> Any:
    return torch.compile(what, backend=backend or _backend.get(), fullgraph=True)


def graphs() -> int:
    """Return the number of compiled graphs, after a check that there was no graph break."""
    assert not counters["graph_break"]
    return counters["stats"]["unique_graphs"]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what the hook logged, but for a missing loss; torch traces its compiler through the same log."""
    texts = [record.getMessage() for record in caplog.records if record.name.startswith("tensortrial")]
    return [text for text in texts if not text.startswith("no loss is saved")]


def values(out: str) -> dict[tuple[str, int], Any]:
    trial = create_trial(out)
    tensors = [trial.tensor(name) for name in trial.tensor_names()]
    return {(tensor.name, step): tensor.value(step) for tensor in tensors for step in tensor.steps()}


def check_same(out: str, expected: dict[tuple[str, int], Any]) -> None:
    found = values(out)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.allclose(found[name], value, atol=1e-6), name


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    """Return what is saved of four steps without a compiler."""
    out = str(tmp_path_factory.mktemp("expected") / "eager")
    hook, net, loss = tt.Hook(out, save_all=True, save_config=EVERY_THIRD), seeded(), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    train(net, 4, loss)
    hook.close()
    return values(out)


def wrap_first(hook: Any, net: Any, backend: str | None = None) -> Any:
    net = compiled(net, backend)
    hook.register_module(net)
    return net


def register_first(hook: Any, net: Any, backend: str | None = None) -> Any:
    hook.register_module(net)
    return compiled(net, backend)


def compile_first(hook: Any, net: Any, backend: str | None = None) -> Any:
    net.compile(backend=backend or _backend.get(), fullgraph=True)
    hook.register_module(net)
    return net


def compile_last(hook: Any, net: Any, backend: str | None = None) -> Any:
    hook.register_module(net)
    net.compile(backend=backend or _backend.get(), fullgraph=True)
    return net


OTHER_WAYS = (register_first, compile_first, compile_last)


def test_the_hook_imports_the_compiler_only_when_it_is_used(tmp_path: Path) -> None:
    script = """
        import sys
        import torch
        import tensortrial.hooks.pytorch as tt

        model = torch.nn.Linear(2, 2)
        hook = tt.Hook("run")
        hook.register_module(model)
        model(torch.ones(1, 2)).sum().backward()
        hook.close()
        print("torch._dynamo" in sys.modules)
    """
    done = run(script, tmp_path)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.usefixtures("way")
class TestWhole:
    @pytest.mark.parametrize(
        ("how", "backend"),
        [
            (wrap_first, WHOLE),
            *((how, QUICK) for how in OTHER_WAYS),
            *(pytest.param(how, WHOLE, marks=pytest.mark.slow) for how in OTHER_WAYS),
        ],
    )
    def test_a_compiled_model_saves_the_same_as_uncompiled(
        self,
        make_hook: Any,
        out: str,
        caplog: pytest.LogCaptureFixture,
        expected: dict[tuple[str, int], Any],
        how: Callable[[Any, Any, str | None], Any],
        backend: str,
    ) -> None:
        hook, loss = make_hook(save_all=True, save_config=EVERY_THIRD), nn.CrossEntropyLoss()
        hook.register_loss(loss)
        net = how(hook, seeded(), backend)
        train(net, 4, loss)
        hook.close()
        check_same(out, expected)
        # One for the steps that are saved, and the model's own for the others.
        assert graphs() == 2
        assert warnings(caplog) == []

    @pytest.mark.parametrize("how", [wrap_first, compile_first, compile_last])
    def test_a_model_that_was_compiled_before_and_is_reset_saves_the_same(
        self, make_hook: Any, out: str, expected: dict[tuple[str, int], Any], how: Callable[[Any, Any], Any]
    ) -> None:
        hook, loss = make_hook(save_all=True, save_config=EVERY_THIRD), nn.CrossEntropyLoss()
        hook.register_loss(loss)
        net = how(hook, seeded())
        torch.compiler.reset()
        train(net, 4, loss)
        hook.close()
        check_same(out, expected)
        assert graphs() == 2

    @by_both_backends
    def test_a_model_has_only_its_own_graph_if_nothing_inside_is_saved(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["weights", "gradients"], save_config=EVERY_THIRD)
        net = wrap_first(hook, seeded())
        train(net, 4)
        hook.close()
        assert graphs() == 1
        assert create_trial(out).tensor("gradient/Net_fc1.weight").steps() == [0, 3]

    def test_a_model_compiled_with_its_loss_saves_the_same_in_one_graph(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture, expected: dict[tuple[str, int], Any]
    ) -> None:
        hook, net, loss = make_hook(save_all=True, save_config=EVERY_THIRD), seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        forward = compiled(lambda x, y: loss(net(x), y), WHOLE)
        for x, y in batches(4):
            optimizer.zero_grad()
            forward(x, y).backward()
            optimizer.step()
        hook.close()
        check_same(out, expected)
        assert graphs() == 2
        assert warnings(caplog) == []

    @by_both_backends
    def test_a_tensor_that_matches_later_is_saved_from_then_on(self, make_hook: Any) -> None:
        hook = make_hook(include_regex="fc1_output")
        net = wrap_first(hook, seeded())
        train(net, 2)
        hook.get_collection("default").include("fc2_output")
        train(net, 2)
        trial = closed(hook)
        assert trial.tensor("fc1_output_0").steps() == [0, 1, 2, 3]
        # Compiled code checks the switch when a step begins, which is when the change takes effect.
        assert trial.tensor("fc2_output_0").steps() == [2, 3]

    @by_both_backends
    def test_compiled_code_follows_modes_and_held_steps(self, make_hook: Any, out: str) -> None:
        modes = {tt.modes.TRAIN: tt.SaveConfigMode(save_interval=3), tt.modes.EVAL: tt.SaveConfigMode(save_interval=1)}
        hook, net = make_hook(include_regex="fc1_output", save_config=tt.SaveConfig(modes)), seeded()
        hook.register_module(net)
        forward = compiled(lambda x: net(x) * 2)
        x = batches(1)[0][0]
        for mode, held, runs in [("TRAIN", False, 5), ("EVAL", False, 2), ("TRAIN", True, 2)]:
            hook.set_mode(tt.modes[mode])
            for _ in range(runs):
                if held:
                    with hook.step():
                        forward(x), forward(x)
                else:
                    forward(x)
        tensor = closed(hook).tensor("fc1_output_0")
        assert tensor.steps(tt.modes.TRAIN) == [0, 3, 6]
        assert tensor.steps(tt.modes.EVAL) == [0, 1]
        assert create_trial(out).tensor("fc1_output_1").steps() == [8]
        assert graphs() == 2

    @by_both_backends
    def test_a_compiled_model_can_be_copied_while_it_is_registered(self, make_hook: Any) -> None:
        hook = make_hook(save_all=True)
        net = compile_last(hook, seeded())
        train(net, 1)
        twin = copy.deepcopy(net)
        assert train(compiled(twin), 2) == pytest.approx(train(net, 2))

    @by_both_backends
    def test_compiled_training_stops_when_a_rule_requests_it(
        self, make_hook: Any, out: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_limits(monkeypatch, seconds_between_reads_of_a_local_stop_request=0.0)
        hook, net = make_hook(save_all=True), seeded()
        hook.register_module(net)
        forward = compiled(lambda x: net(x) * 2)
        forward(batches(1)[0][0])
        Path(out, STOP_FILE).write_text('{"reason": "enough"}')
        with pytest.raises(TrainingStopped):
            forward(batches(1)[0][0])


@pytest.mark.usefixtures("way")
class TestPart:
    def test_a_compiled_part_saves_the_same_as_uncompiled(
        self, make_hook: Any, out: str, expected: dict[tuple[str, int], Any]
    ) -> None:
        hook, net, loss = make_hook(save_all=True, save_config=EVERY_THIRD), seeded(), nn.CrossEntropyLoss()
        net.fc1.compile(backend=WHOLE, fullgraph=True)
        net.fc2 = compiled(net.fc2, WHOLE)
        hook.register_module(net)
        hook.register_loss(loss)
        train(net, 4, loss)
        hook.close()
        check_same(out, expected)
        graphs()

    @by_both_backends
    @pytest.mark.parametrize("first", [True, False], ids=["compiled first", "registered first"])
    def test_modules_of_one_class_share_their_graphs(self, make_hook: Any, first: bool) -> None:
        class Block(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc, self.relu = nn.Linear(64, 64), nn.ReLU()

            def forward(self, x: Any) -> Any:
                return x + self.relu(self.fc(x))

        # More of them than the compiler keeps graphs of one function.
        hook, net = make_hook(include_regex="relu_output", save_config=EVERY_THIRD), nn.Sequential()
        net.extend(Block() for _ in range(20))
        if not first:
            hook.register_module(net)
        for block in net:
            block.compile(backend=_backend.get(), fullgraph=True)
        if first:
            hook.register_module(net)
        for x, _ in batches(4):
            net(x.clone().requires_grad_()).sum().backward()
        trial = closed(hook)
        assert trial.tensor_names() == sorted(f"{i}.relu_output_0" for i in range(20))
        assert {tuple(trial.tensor(name).steps()) for name in trial.tensor_names()} == {(0, 3)}
        found = [trial.tensor(f"{i}.relu_output_0").value(0) for i in range(20)]
        x = batches(1)[0][0]
        for block, value in zip(net, found, strict=True):
            assert np.allclose(value, torch.relu(block.fc(x)).detach(), atol=1e-6)
            x = x + torch.from_numpy(value)
        assert graphs() == 2

    def test_a_part_that_runs_again_in_backward_is_saved_once(self, make_hook: Any) -> None:
        class Checkpointed(Net):
            def forward(self, x: Any) -> Any:
                return self.fc2(checkpoint(lambda x: self.relu(self.fc1(x)), x, use_reentrant=False))

        hook, net = make_hook(save_all=True), seeded(Checkpointed)
        net = wrap_first(hook, net, WHOLE)
        train(net, 2)
        trial = closed(hook)
        assert trial.tensor("fc1_output_0").steps() == trial.tensor("relu_output_0").steps() == [0, 1]
        assert not trial.has_tensor("fc1_output_1")
        assert graphs() == 1

    @by_both_backends
    def test_dictionaries_and_dataclasses_of_a_compiled_part_are_saved(self, make_hook: Any, out: str) -> None:
        class Inner(Net):
            def forward(self, x: Any, *, scale: Any) -> Any:
                logits = super().forward(x)
                return Result(logits, {"hidden": (logits * 2, None)}), [logits * scale]

        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = Inner()

            def forward(self, x: Any) -> Any:
                result, rest = self.inner(x, scale=x.mean())
                return result.logits + rest[0]

        found = []
        for folder in (out, f"{out}-compiled"):
            hook, net = make_hook(folder, save_all=True), seeded(Outer)
            net = wrap_first(hook, net) if folder != out else register_first(hook, net)._orig_mod
            net(batches(1)[0][0]).sum().backward()
            hook.close()
            found.append(folder)
        assert {"inner_output_logits", "inner_output_more_hidden_0", "inner_input_scale"} <= {n for n, _ in values(out)}
        check_same(found[1], values(out))

    def test_gradients_of_a_compiled_backward_are_saved(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["gradients"])
        net = wrap_first(hook, seeded(), WHOLE)
        x = batches(1)[0][0]
        with torch._dynamo.compiled_autograd._enable(partial(compiled, backend=WHOLE)):
            net(x).square().mean().backward()
        hook.close()
        assert np.array_equal(values(out)["gradient/Net_fc1.weight", 0], net._orig_mod.fc1.weight.grad)
        graphs()


@dataclasses.dataclass
class Result:
    logits: Any
    more: Any


class TestWhatCannotBeCaptured:
    @by_both_backends
    def test_a_part_that_was_compiled_before_is_a_warning(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, net = make_hook(save_all=True), compiled(seeded())
        train(net, 1)
        hook.register_module(net)
        train(net, 2)
        hook.close()
        assert ["modules inside Net are not captured" in text for text in warnings(caplog)] == [True], warnings(caplog)
        assert create_trial(out).tensor("Net_output_0").steps() == [0, 1]

    @by_both_backends
    def test_a_branch_of_the_graph_is_a_warning(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Branches(Net):
            def forward(self, x: Any) -> Any:
                hidden = torch.cond(x.sum() > 0, lambda x: self.fc1(x), lambda x: self.fc1(-x), (x,))
                return self.fc2(torch.relu(hidden))

        hook = make_hook(save_all=True)
        net = wrap_first(hook, seeded(Branches))
        train(net, 2)
        hook.close()
        assert warnings(caplog) == ["tensors in cond inside compiled code are not captured"]
        trial = create_trial(out)
        assert trial.tensor("fc2_output_0").steps() == [0, 1]
        assert not trial.has_tensor("fc1_output_0")

    @by_both_backends
    def test_compiled_vmap_is_a_warning(self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture) -> None:
        class Mapped(Net):
            def forward(self, x: Any) -> Any:
                return self.fc2(torch.relu(torch.func.vmap(self.fc1)(x)))

        hook = make_hook(save_all=True)
        net = wrap_first(hook, seeded(Mapped))
        train(net, 2)
        hook.close()
        assert ["inside vmap" in text for text in warnings(caplog)] == [True]
        assert create_trial(out).tensor("fc2_output_0").steps() == [0, 1]

    def test_a_backward_inside_compiled_code_is_a_warning(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, net = make_hook(save_all=True), seeded()
        hook.register_module(net)

        def step(x: Any) -> Any:
            loss = net(x).sum()
            loss.backward()
            return loss.detach()

        with torch._dynamo.config.patch(trace_autograd_ops=True):
            step = compiled(step, WHOLE)
            for x, _ in batches(3):
                step(x)
        hook.close()
        assert ["gradients of Net are not captured" in text for text in warnings(caplog)] == [True]
        assert create_trial(out).tensor("fc1_output_0").steps() == [0, 1, 2]

    @by_both_backends
    def test_a_torch_without_operators_with_effects_is_a_warning(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        compile_as_an_older_torch(monkeypatch)
        hook = make_hook(save_all=True)
        net = wrap_first(hook, seeded())
        train(net, 2)
        hook.close()
        assert any("has no operators with effects" in text for text in warnings(caplog)), warnings(caplog)
        assert create_trial(out).tensor("Net_output_0").steps() == [0, 1]

    @by_both_backends
    def test_a_step_that_becomes_due_too_late_is_a_warning(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, net = make_hook(save_all=True, save_config=tt.SaveConfig(save_interval=100)), seeded()
        hook.register_module(net)
        forward = compiled(lambda x: net(x) * 2)
        x = batches(1)[0][0]
        for _ in range(3):
            forward(x)
        hook.get_collection("all").save_config = tt.SaveConfig(save_steps=[3])
        forward(x)
        hook.close()
        assert ["became due" in text for text in warnings(caplog)] == [True]


class TestSwitch:
    @pytest.mark.parametrize("has_graphs", [False, True])
    def test_the_compilers_limit_is_as_before_once_all_hooks_are_closed(self, has_graphs: bool) -> None:
        from torch._dynamo import config

        hooks, made = [nn.Identity(), nn.Identity()], Switch()
        with config.patch(recompile_limit=10):
            for hook in hooks:
                made.turn(hook, True)
            made.has_graphs = has_graphs
            made.close(hooks[0])
            assert config.recompile_limit == 20
            made.close(hooks[1])
            # Functions keep the graphs that capture, and would come to the limit sooner.
            assert config.recompile_limit == (20 if has_graphs else 10)

    @by_both_backends
    def test_the_switch_is_off_once_all_hooks_are_closed(self, make_hook: Any) -> None:
        hook = make_hook(save_all=True)
        net = wrap_first(hook, seeded())
        train(net, 2)
        assert switch.on
        hook.close()
        assert not switch.on


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the compiler imports what is deprecated
def test_an_optimizer_has_no_more_graphs_than_without_a_hook(make_hook: Any) -> None:
    def breaks(net: Any) -> dict[str, int]:
        torch.compiler.reset()
        counters.clear()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        step = torch.compile(lambda: optimizer.step(), backend="eager")
        for x, _ in batches(2):
            optimizer.zero_grad()
            net(x).sum().backward()
            step()
        return dict(counters["graph_break"])

    without = breaks(seeded())
    hook, net = make_hook(save_all=True), seeded()
    hook.register_module(net)
    assert breaks(net) == without


@pytest.mark.slow
def test_the_inductor_backend_saves_the_same(tmp_path: Path) -> None:
    program = """
        import torch
        from support.training import seeded, train
        import tensortrial.hooks.pytorch as tt

        hook = tt.Hook("run", save_config=tt.SaveConfig(save_interval=10), save_all=True)
        net = torch.compile(seeded(), fullgraph=True)
        hook.register_module(net)
        train(net, 50)
    """
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    trial = create_trial(tmp_path / "run")
    for name in ("gradient/Net_fc1.weight", "Net_output_0", "fc1_output_0", "relu_output_0"):
        assert trial.tensor(name).steps() == list(range(0, 50, 10)), name
    before, after = (trial.tensor(f"{name}_output_0").value(40) for name in ("fc1", "relu"))
    assert before.min() < 0
    assert np.array_equal(after, before.clip(0))
