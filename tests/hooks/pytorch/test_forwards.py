"""The forwards that begin a step, if a model is wrapped, called in parts, or traced."""

from __future__ import annotations

import inspect
import logging
import textwrap
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from support.programs import run  # noqa: E402
from support.training import Net, array, batches, same, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402

# TorchScript is deprecated, and says so in each of its functions; a comparison with the trace warns of what differs.
SCRIPT = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
X = batches(1)[0][0]


def hooked(make_hook: Any, net: Any = None, **options: Any) -> tuple[Any, Any]:
    hook, net = make_hook(**{"save_all": True, **options}), seeded() if net is None else net
    hook.register_module(net)
    return hook, net


class Redirected(nn.Module):
    """A wrapper like Lightning's: its forward calls the module again, whose forward is another method meanwhile."""

    def __init__(self, module: nn.Module, method: str) -> None:
        super().__init__()
        self.module, self.method = module, method

    def forward(self, *args: Any) -> Any:
        original = self.module.forward

        def once(*args: Any) -> Any:
            self.module.forward = original
            return getattr(self.module, self.method)(*args)

        self.module.forward = once
        return self.module(*args)


class WithStep(Net):
    def training_step(self, x: Any, y: Any) -> Any:
        return nn.functional.cross_entropy(self(x), y)


class TestNested:
    @pytest.mark.parametrize("interval", [1, 2])
    def test_nested_forwards_of_one_model_are_one_step(self, make_hook: Any, interval: int) -> None:
        hook, net = hooked(make_hook, seeded(WithStep), save_config={"save_interval": interval})
        wrapper = Redirected(net, "training_step")
        for x, y in batches(4):
            net.zero_grad()
            wrapper(x, y).backward()
        trial = closed(hook)
        expected = [0, 1, 2, 3][::interval]
        for name in ("WithStep_fc1.weight", "gradient/WithStep_fc1.weight", "fc1_output_0"):
            assert trial.tensor(name).steps() == expected

    def test_a_forward_after_an_interrupted_one_begins_a_step(self, make_hook: Any, out: str) -> None:
        class Interrupted(Net):
            def forward(self, x: Any) -> Any:
                if x.sum() == 0:
                    raise KeyboardInterrupt
                return super().forward(x)

        hook, net = hooked(make_hook, seeded(Interrupted))
        with pytest.raises(KeyboardInterrupt):
            net(torch.zeros(1, 64))
        train(net, 2)
        hook.close()
        assert create_trial(out).tensor("Interrupted_output_0").steps() == [1, 2]

    def test_a_model_inside_another_of_its_class_begins_its_own_step(self, make_hook: Any, out: str) -> None:
        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = Net()

            def forward(self, x: Any) -> Any:
                return self.net(x)

        outer = seeded(Outer)
        hook, _ = hooked(make_hook, outer.net)
        train(outer, 2)
        hook.close()
        assert create_trial(out).tensor("Net_output_0").steps() == [0, 1]


DDP = """
    from pathlib import Path
    from typing import Any

    import torch
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.nn.parallel import DistributedDataParallel
    from torch import nn
    from support.training import Net, batches, seeded
    import tensortrial.hooks.pytorch as tt

    def work(rank, rendezvous):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=2)
        net = seeded(WithStep)
        hook = tt.Hook(
            "run", save_config=tt.SaveConfig(save_interval=2), save_all=True, include_workers="all"
        )
        hook.register_module(net)
        parallel = DistributedDataParallel(net)
        redirected = Redirected(net, "training_step")
        parallel.module = redirected  # its forward enters the registered module
        for x, y in batches(6)[rank::2]:
            net.zero_grad()
            parallel(x, y).backward()
        hook.close()
        dist.barrier()
        dist.destroy_process_group()

    if __name__ == "__main__":
        # A file, because another test may take a port that was found to be free.
        mp.start_processes(work, ((Path.cwd() / "rendezvous").as_uri(),), 2, start_method="fork")
"""


@pytest.mark.distributed
@pytest.mark.slow
def test_a_model_that_is_wrapped_later_begins_one_step_a_batch(tmp_path: Path) -> None:
    classes = "\n".join(inspect.getsource(each) for each in (Redirected, WithStep))
    program = textwrap.dedent(DDP).replace("def work", f"{classes}\ndef work")
    done = run(program, tmp_path, TENSORTRIAL_STRICT="1")
    assert done.returncode == 0, done.stderr
    trial = create_trial(tmp_path / "run")
    for name in ("WithStep_fc1.weight", "gradient/WithStep_fc1.weight", "fc1_output_0"):
        assert trial.tensor(name).steps() == [0, 2]
        assert trial.tensor(name).workers(2) == ["worker_0", "worker_1"]


class TestParts:
    def test_parts_in_a_held_step_save_the_models_parameters(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Wrapper(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = Net()

            def training_step(self, x: Any, y: Any) -> Any:
                return nn.functional.cross_entropy(self.net(x), y)

        net = seeded(Wrapper)
        hook, _ = hooked(make_hook, net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        expected = []
        with caplog.at_level(logging.WARNING):
            for x, y in batches(2):
                expected.append(array(net.net.fc1.weight))
                with hook.step():
                    optimizer.zero_grad()
                    net.training_step(x, y).backward()
                    optimizer.step()
            hook.close()
        trial = create_trial(out)
        for step in range(2):
            assert same(trial.tensor("Wrapper_net.fc1.weight").value(step), expected[step])
        assert trial.tensor("gradient/Wrapper_net.fc1.weight").steps() == [0, 1]
        assert ["no loss is saved" in text for text in caplog.messages] == [True]

    def test_parameters_of_several_models_are_those_before_the_first_update(self, make_hook: Any, out: str) -> None:
        hook, net = hooked(make_hook)
        other = seeded(lambda: nn.Linear(64, 10))
        hook.register_module(other)
        before = array(other.weight)
        with hook.step():
            train(net, 1)
            with torch.no_grad():
                other.weight.zero_()
            other(X)
        hook.close()
        assert same(create_trial(out).tensor("Linear_weight").value(0), before)


def layers() -> Any:
    """A model that can be scripted."""
    return seeded(lambda: nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)))


WAYS = {
    "trace": lambda net: torch.jit.trace(net, X),
    "trace a part": lambda net: torch.jit.trace(net[0], X),
    "trace a method": lambda net: torch.jit.trace_module(net, {"forward": X}),
    "script": torch.jit.script,
    "script a part": lambda net: torch.jit.script(net[0]),
}


@SCRIPT
class TestTorchScript:
    @pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
    @pytest.mark.parametrize("way", WAYS)
    def test_scripting_a_registered_model_begins_no_step(self, make_hook: Any, way: str, is_closed: bool) -> None:
        hook, net = hooked(make_hook, layers())
        net(X)
        if is_closed:
            hook.close()
        made = WAYS[way](net)
        assert torch.equal(made(X), (net[0] if "part" in way else net).forward(X))
        net(X)
        trial = closed(hook)
        assert trial.tensor("Sequential_output_0").steps() == ([0] if is_closed else [0, 1])
        assert not [name for name in trial.tensor_names(step=1) if name.endswith("_1")]

    def test_scripting_leaves_other_callbacks_alone(self, make_hook: Any) -> None:
        _, net = hooked(make_hook)
        calls = []
        net.register_forward_hook(lambda *_: calls.append(1))
        with pytest.raises(RuntimeError):  # as without a hook
            torch.jit.script(net)
        net(X)
        assert calls == [1]

    def test_a_scripted_part_of_a_model_is_left_out(self, make_hook: Any, caplog: Any) -> None:
        net = seeded()
        net.fc1 = torch.jit.script(net.fc1)
        hook, _ = hooked(make_hook, net)
        train(net, 2)
        trial = closed(hook)
        assert trial.tensor("fc2_output_0").steps() == [0, 1]
        assert trial.tensor("gradient/Net_fc1.weight").steps() == [0, 1]
        assert not trial.has_tensor("fc1_output_0")
        assert len([each for each in caplog.messages if "TorchScript" in each]) == 1

    def test_a_scripted_model_is_saved_in_held_steps(self, make_hook: Any, out: str) -> None:
        net = torch.jit.script(layers())
        hook, _ = hooked(make_hook, net)
        with hook.step():
            net(X).sum().backward()
        hook.close()
        assert len([name for name in create_trial(out).tensor_names() if name.endswith("0.weight")]) == 2

    def test_export_to_onnx_begins_no_step(self, make_hook: Any, out: str, tmp_path: Path) -> None:
        pytest.importorskip("onnx")
        hook, net = hooked(make_hook)
        net(X)
        torch.onnx.export(net, (X,), str(tmp_path / "net.onnx"), dynamo=False)
        hook.close()
        assert create_trial(out).tensor("Net_output_0").steps() == [0]


def test_a_graph_that_make_fx_traces_is_the_models_own(make_hook: Any) -> None:
    hook, net = hooked(make_hook, layers())
    net(X)
    graph = make_fx(net)(X)
    net(X)
    assert closed(hook).tensor("Sequential_output_0").steps() == [0, 1]
    assert graph.code == make_fx(net)(X).code


def test_a_forward_inside_vmap_begins_no_step(make_hook: Any, out: str, caplog: pytest.LogCaptureFixture) -> None:
    hook, net = hooked(make_hook, nn.Sequential(nn.Linear(64, 10)))
    net(X)
    with caplog.at_level(logging.WARNING):
        expected = torch.func.vmap(net)(X)
        torch.func.grad(lambda p: torch.func.functional_call(net, p, X).sum())(dict(net.named_parameters()))
        torch.func.vmap(net)(X)
    net(X)
    hook.close()
    assert expected.shape == (32, 10)
    trial = create_trial(out)
    assert trial.steps() == [0, 1]
    assert not trial.has_tensor("0_output_1")
    assert len(caplog.messages) <= 1  # once a process


class Watched(Net):
    """A model that notes how many callbacks one of its modules has as it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.callbacks: list[int] = []

    def forward(self, x: Any) -> Any:
        self.callbacks.append(len(self.fc1._forward_pre_hooks) + len(self.fc1._forward_hooks))
        return super().forward(x)


@pytest.mark.usefixtures("nothing_is_compiled")
class TestCallbacksOfModules:
    def test_a_module_has_none_at_steps_at_which_nothing_is_due(self, make_hook: Any, out: str) -> None:
        hook, net = hooked(make_hook, seeded(Watched), save_config={"save_interval": 2})
        train(net, 4)
        hook.close()
        assert net.callbacks == [2, 0, 2, 0]
        assert create_trial(out).tensor("fc1_output_0").steps() == [0, 2]

    def test_a_module_may_be_added_to_a_collection_before_it_is_a_part_of_the_model(self, make_hook: Any) -> None:
        hook, net, new = make_hook(include_collections=["new"]), nn.Sequential(nn.Linear(2, 2)), nn.ReLU()
        hook.register_module(net)
        net(torch.ones(1, 2))
        hook.get_collection("new").add_module_tensors(new, inputs=True, outputs=False)
        net(torch.ones(1, 2))
        net.append(new)
        for _ in range(3):
            net(torch.ones(1, 2))
        assert closed(hook).tensor("1_input_0").steps()[-2:] == [3, 4]

    def test_those_that_return_run_before_those_of_the_user(self, make_hook: Any) -> None:
        hook, net = hooked(make_hook, save_config={"save_interval": 2})
        net(X)
        net(X)
        net.fc1.register_forward_pre_hook(lambda module, args: (2 * args[0],))
        net(X)
        assert same(closed(hook).tensor("fc1_input_0").value(2), array(X))
