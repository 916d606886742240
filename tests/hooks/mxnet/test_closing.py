"""A closed MXNet hook leaves nothing behind."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import mxnet as mx
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tensortrial.hooks.mxnet as tt
from support.gluon_training import evaluate, seeded, softmax_loss, train
from support.made_hooks import closed
from support.memory import resident_bytes
from tensortrial import create_trial

EVERY = {"save_interval": 1}


def callbacks_of(block: Any) -> list[Any]:
    found: list[Any] = []
    block.apply(lambda each: found.extend([*each._forward_pre_hooks.values(), *each._forward_hooks.values()]))
    return found


def test_a_closed_hook_leaves_no_callback_on_the_model(out: str) -> None:
    hook, net, loss = tt.Hook(out, save_all=True, save_config=EVERY), seeded(), softmax_loss()
    own = net.fc1.register_forward_hook(lambda *args: None)
    hook.register_block(net)
    hook.register_block(loss)
    train(net, 2, loss)
    assert len(callbacks_of(net)) > 2
    hook.close()
    assert len(callbacks_of(net)) == 1
    assert callbacks_of(loss) == []
    own.detach()
    hook.register_block(net)
    hook.get_collection("late").add_block_tensors(net)
    train(net, 1, loss)
    assert callbacks_of(net) == []
    assert create_trial(out).steps() == [0, 1]


def test_a_hook_that_nobody_closed_holds_no_model(out: str) -> None:
    hook, net = tt.Hook(out, save_all=True, save_config=EVERY), seeded()
    hook.register_block(net)
    train(net, 2)
    model = weakref.ref(net)
    del net
    gc.collect()
    assert model() is None
    # The names of what is gone are not used again.
    other = seeded()
    hook.register_block(other)
    evaluate(other)
    trial = closed(hook)
    assert trial.tensor("net_fc1_weight").steps() == [0, 1]
    assert trial.tensor("net_fc1_weight_1").steps() == [2]


def test_the_memory_of_closed_jobs_is_free(tmp_path: Path) -> None:
    hooks = []

    def job(number: int) -> None:
        hooks.append(hook := tt.Hook(tmp_path / str(number), include_collections=["weights"], save_config=EVERY))
        net = nn.Dense(1 << 20, in_units=5, prefix="large_")  # 20 MiB, and as much of gradients
        net.initialize()
        hook.register_block(net)
        with autograd.record():
            loss = net(mx.nd.ones((1, 5))).sum()
        loss.backward()
        gluon.Trainer(net.collect_params(), "sgd").step(1)
        mx.nd.waitall()
        hook.close()

    used = []
    for number in range(7):
        job(number)
        used.append(resident_bytes())
    # A notebook keeps its hooks. Each of the last five would leave 40 MiB.
    assert used[-1] - used[1] < 80 << 20


class Odd(gluon.Block):
    """Accepts and returns values that cannot be converted to arrays, and a list that contains itself."""

    def forward(self, x: Any) -> Any:
        found: list[Any] = [x * 2, None, "text", object()]
        found.append(found)
        return found


def test_odd_values_leave_the_hook_on(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    hook, net = tt.Hook(out, save_all=True, save_config=EVERY), Odd(prefix="odd_")
    hook.register_block(net)
    hook.save_tensor("mixed", [mx.nd.ones(1), "text"])
    hook.save_scalar("mixed number", [mx.nd.ones(1), "text"])
    net(mx.nd.ones((2, 2)))
    hook.close()
    assert create_trial(out).tensor_names() == ["odd_input_0", "odd_output_0"]
    assert json.loads(Path(out, "end", "worker_0.json").read_text())["failure"] is None
