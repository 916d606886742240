"""Image classifiers of Gluon's model zoo, without trained weights, with images of 32 x 32."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

mx = pytest.importorskip("mxnet")
from mxnet import autograd, gluon  # noqa: E402
from mxnet.gluon.model_zoo import vision  # noqa: E402

import tensortrial.hooks.mxnet as tt  # noqa: E402
from tensortrial import create_trial  # noqa: E402

BATCH = 2
STEPS = 20
SAVED = (0, 19)
CASES = {
    "mobilenet0_25": {},
    "mobilenet_v2_0_25": {},
    "resnet18_v1": {"thumbnail": True},
    "resnet18_v2": {"thumbnail": True},
}


def bits(array: Any) -> tuple[tuple[int, ...], bytes]:
    value = array.asnumpy() if hasattr(array, "asnumpy") else array
    return tuple(value.shape), value.tobytes()


def arrays(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [each for item in value for each in arrays(item)]
    return [value]


class Truth:
    """What MXNet says of the steps that are saved."""

    def __init__(self) -> None:
        self.parameters: dict[int, dict[str, Any]] = {}
        self.gradients: dict[int, dict[str, Any]] = {}
        self.values: dict[int, dict[tuple[str, str], Counter[Any]]] = {}
        self.step = -1

    def watch(self, net: Any) -> None:
        """Keep what goes in and out of each block."""
        net.apply(lambda block: block.register_forward_pre_hook(lambda block, args: self._see(block, "input", args)))
        net.apply(lambda block: block.register_forward_hook(lambda block, args, out: self._see(block, "output", out)))

    def _see(self, block: Any, direction: str, value: Any) -> None:
        if self.step in self.values:
            seen = self.values[self.step].setdefault((block.name, direction), Counter())
            seen.update(map(bits, arrays(value)))

    def begin(self, step: int, net: Any) -> None:
        """Keep the parameters before a step."""
        self.step = step
        if step in SAVED:
            self.values[step] = {}
            self.parameters[step] = {name: bits(each.data()) for name, each in net.collect_params().items()}

    def end(self, net: Any) -> None:
        """Keep the gradients after a backward."""
        if self.step in SAVED:
            self.gradients[self.step] = {
                f"gradient/{name}": bits(each.grad())
                for name, each in net.collect_params().items()
                if each.grad_req != "null"
            }


def images(step: int) -> tuple[Any, Any]:
    mx.random.seed(step)
    return mx.nd.random.normal(shape=(BATCH, 3, 32, 32)), mx.nd.array([0, 1])


def train(name: str, truth: Truth | None = None, hook: Any = None) -> tuple[list[Any], list[Any]]:
    """Train a model. Return its losses and its parameters in the end, to the bit."""
    mx.random.seed(0)
    net = getattr(vision, name)(classes=4, prefix="net_", **CASES[name])
    net.initialize(mx.init.Xavier())
    net(images(0)[0])  # has the shapes known
    mx.nd.waitall()  # a convolution reorders its weight in memory after a prediction, and a read does not wait for that
    loss = gluon.loss.SoftmaxCrossEntropyLoss(prefix="loss_")
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    if hook is not None:
        hook.register_block(net)
    if truth is not None:
        truth.watch(net)
    losses = []
    for step in range(STEPS):
        x, y = images(step)
        mx.random.seed(step)  # of dropout
        if truth is not None:
            truth.begin(step, net)
        with autograd.record():
            value = loss(net(x), y)
        value.backward()
        if truth is not None:
            truth.end(net)
        trainer.step(BATCH)
        losses.append(bits(value))
    return losses, [bits(each.data()) for each in net.collect_params().values()]


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_plain_mxnet(name: str, tmp_path: Path) -> None:
    plain = train(name)
    hook = tt.Hook(tmp_path / "run", save_all=True, save_config=tt.SaveConfig(save_steps=list(SAVED), end_step=0))
    truth = Truth()
    hooked = train(name, truth, hook)
    hook.close()
    assert hooked == plain, "losses or weights differ from those of a run without a hook"
    trial = create_trial(tmp_path / "run")
    for step in SAVED:
        saved = {each: bits(trial.tensor(each).value(step)) for each in trial.tensor_names(step=step)}
        for each, value in {**truth.parameters[step], **truth.gradients[step]}.items():
            assert saved.pop(each, None) == value, f"{each} at step {step}"
        assert by_block(saved, truth.values[step]) == truth.values[step], f"values of step {step}"


def by_block(saved: dict[str, Any], blocks: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Counter[Any]]:
    """Group values by the name of their block. Blocks of one name are told apart by a number."""
    known, found = set(blocks), dict[tuple[str, str], Counter[Any]]()
    for name, value in saved.items():
        match = re.fullmatch(r"(.+?)_(input|output)_\d+", name)
        assert match, f"nobody expected {name}"
        block, direction = match.groups()
        if (block, direction) not in known:
            block = block.rpartition("_")[0]
        found.setdefault((block, direction), Counter())[value] += 1
    return found
