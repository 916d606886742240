"""Tensors that compiled code captures as outputs of its graphs, which can be recorded as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402
from torch._functorch.aot_autograd import make_boxed_func  # noqa: E402
from torch._inductor.utils import get_all_devices, get_first_incompatible_cudagraph_node  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.programs import run  # noqa: E402
from support.training import batches, same, seeded  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.hooks.pytorch.compile import switch  # noqa: E402

STATISTICS = {"reductions": ["min", "max", "mean", "std"], "norms": ["l2"]}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TENSORTRIAL_COMPILED_CAPTURE", "output")
    torch.compiler.reset()
    switch.epoch = "0"
    yield
    torch.compiler.reset()


class Residual(nn.Module):
    """Convolutions with batch normalization, whose running mean changes in forward, and in-place activations."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1)) for _ in range(2)
        )
        self.head = nn.Linear(4 * 64, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x.view(-1, 1, 8, 8))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.flatten(1))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.projection = nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """A small GPT, which reads the pixels of an image as numbers from 0 to 16."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(17, 16), nn.Embedding(64, 16)
        self.blocks = nn.Sequential(*[Block() for _ in range(2)])
        self.head = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = self.token((x * 16).long()) + self.position(torch.arange(x.shape[1]))
        return self.head(self.blocks(x)[:, -1])


class Twice(nn.Module):
    """A module that runs three times, on two shapes, and returns a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.relu, self.head = nn.Linear(64, 64), nn.ReLU(inplace=True), nn.Linear(64, 10)

    def forward(self, x: Any) -> Any:
        x = self.relu(self.fc(x))
        x = x + self.fc(x) + self.fc(x[:3]).sum()
        x.add_(1)
        return self.head(x)


def wrapped(hook: Any, net: Any) -> Callable[[Any, Any], Any]:
    net = torch.compile(net, backend="aot_eager", fullgraph=True)
    hook.register_module(net)
    return lambda x, y: nn.functional.cross_entropy(net(x), y)


def in_a_function(hook: Any, net: Any) -> Callable[[Any, Any], Any]:
    hook.register_module(net)
    return torch.compile(lambda x, y: nn.functional.cross_entropy(net(x), y), backend="aot_eager", fullgraph=True)


def uncompiled(hook: Any, net: Any) -> Callable[[Any, Any], Any]:
    hook.register_module(net)
    return lambda x, y: nn.functional.cross_entropy(net(x), y)


def train(hook: Any, make: Any, prepare: Any, sizes: tuple[int, ...] = (32, 32, 32, 32)) -> None:
    net = seeded(make)
    loss = prepare(hook, net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for (x, y), size in zip(batches(len(sizes)), sizes, strict=True):
        optimizer.zero_grad()
        loss(x[:size], y[:size]).backward()
        optimizer.step()
    hook.close()


def contents(out: str | Path, raw: bool = True) -> dict[tuple[str, int], Any]:
    """Return the raw values of a run, or the statistics."""
    trial = create_trial(out)
    tensors = [trial.tensor(name) for name in trial.tensor_names()]
    if raw:
        return {(each.name, step): each.value(step) for each in tensors for step in each.steps()}
    return {
        (each.name, step): [each.reduction_value(step, name) for name in ("min", "max", "mean", "std", "l2")]
        for each in tensors
        for step in each.steps()
    }


@pytest.fixture
def compare(make_hook: Any, out: str) -> Callable[..., dict[tuple[str, int], Any]]:
    """Return a function that checks what compiled code saves against what uncompiled code saves."""

    def check(make: Any, prepare: Any = wrapped, form: Any = None, **options: Any) -> dict[tuple[str, int], Any]:
        config: dict[str, Any] = {"save_all": True, "save_config": tt.SaveConfig(save_interval=3)}
        train(make_hook(f"{out}-eager", reduction_config=form, **config), make, uncompiled, **options)
        train(make_hook(out, reduction_config=form, **config), make, prepare, **options)
        found, expected = contents(out, form is None), contents(f"{out}-eager", form is None)
        assert found.keys() == expected.keys()
        assert {step for _, step in found} == {0, 3}
        assert [key for key, value in found.items() if not same(value, expected[key])] == []
        return found

    return check


@pytest.mark.parametrize("prepare", [wrapped, in_a_function])
@pytest.mark.parametrize("make", [Residual, Decoder, Twice])
def test_outputs_of_graphs_are_the_tensors_of_uncompiled_code_bit_for_bit(
    compare: Any, make: Any, prepare: Any
) -> None:
    compare(make, prepare)


def test_statistics_of_outputs_of_graphs_are_those_of_uncompiled_code(compare: Any) -> None:
    compare(Decoder, form=tt.ReductionConfig(**STATISTICS))


def test_outputs_of_graphs_may_have_another_shape_at_each_step(compare: Any) -> None:
    found = compare(Twice, sizes=(32, 20, 9, 11))
    assert found["fc_output_0", 3].shape == (11, 64)


def test_tensors_inside_activation_checkpointing_are_saved_next_to_outputs_of_the_graph(compare: Any) -> None:
    class Checkpointed(Twice):
        def forward(self, x: Any) -> Any:
            return self.head(checkpoint(lambda x: self.relu(self.fc(x)), x, use_reentrant=False))

    assert ("fc_output_0", 3) in compare(Checkpointed)


def test_a_compiled_part_that_runs_twice_in_a_step_is_saved_twice(compare: Any) -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part, self.head = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), nn.Linear(64, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.part(self.part(x)))

    def by_part(hook: Any, net: Any) -> Any:
        net.part.compile(backend="aot_eager", fullgraph=True)
        return uncompiled(hook, net)

    assert ("part_output_1", 0) in compare(Shared, by_part)


def graphs_on_a_device(make_hook: Any, make: Any) -> list[Any]:
    """Return the graphs of forward and backward of a model on a device that is not the CPU, and has no values."""
    graphs = []

    def keep(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    hook = make_hook(save_all=True)
    net = torch.compile(make().to("meta"), backend=aot_autograd(fw_compiler=keep), fullgraph=True)
    hook.register_module(net)
    net(torch.empty(8, 64, device="meta")).sum().backward()
    assert len(graphs) == 2
    return graphs


@pytest.mark.parametrize("way", [None, "operator"])
def test_graphs_on_an_accelerator_can_be_recorded(
    make_hook: Any, way: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)  # there are no values to save
    if way is None:
        monkeypatch.delenv("TENSORTRIAL_COMPILED_CAPTURE")
    else:
        monkeypatch.setenv("TENSORTRIAL_COMPILED_CAPTURE", way)
    graphs = graphs_on_a_device(make_hook, Twice)
    operators = {str(node.target) for graph in graphs for node in graph.graph.nodes if node.op == "call_function"}
    # Nothing reads a value back, and no tensor is on the host: the callbacks' numbers are no inputs of the graph.
    can_be_recorded = all(get_first_incompatible_cudagraph_node(graph) is None for graph in graphs) and all(
        {device.type for device in get_all_devices(graph)} == {"meta"} for graph in graphs
    )
    assert can_be_recorded == (way is None)
    assert all(name.startswith("aten.") for name in operators) == (way is None)


INDUCTOR = """
    import torch
    import torch._functorch.config
    from support.training import evaluate, seeded
    from torch._inductor import ir, scheduler
    import tensortrial.hooks.pytorch as tt

    # What compiles C++ may keep its files; what is tested here may not.
    torch._inductor.config.fx_graph_cache = torch._functorch.config.enable_autograd_cache = False
    torch._inductor.config.compile_threads = 1
    should_partition = scheduler.Scheduler.should_partition

    def partitions(self, node):
        reason = should_partition(self, node)
        print("asked")
        if isinstance(getattr(node, "node", None), ir.FallbackKernel):
            print(reason)
        return reason

    scheduler.Scheduler.should_partition = partitions
    hook = tt.Hook("run", save_config=tt.SaveConfig(save_interval=3), save_all=True)
    net = torch.compile(seeded(), fullgraph=True, mode="reduce-overhead")
    hook.register_module(net)
    evaluate(net, 4)
    hook.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["output", "operator"])
def test_inductor_records_everything_but_operators_of_the_hook(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTRIAL_COMPILED_CAPTURE", way)
    done = run(INDUCTOR, tmp_path)
    assert done.returncode == 0, done.stderr
    reasons = set(done.stdout.split("\n")) - {""}
    custom = {"custom partition op: tensortrial::capture.default"} if way == "operator" else set()
    assert reasons == {"asked"} | custom
    trial = create_trial(tmp_path / "run")
    for step in (0, 3):
        before, after = (trial.tensor(f"{name}_output_0").value(step) for name in ("fc1", "relu"))
        assert before.min() < 0
        assert np.array_equal(after, before.clip(0))
