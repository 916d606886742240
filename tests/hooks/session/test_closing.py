"""A closed hook for sessions leaves nothing behind; and what it saves of a scaled loss."""

from __future__ import annotations

import contextlib
import gc
import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial.hooks.tensorflow as tt
from support.graph_training import LOSS, Net, batches, v1
from support.made_hooks import closed
from tensortrial import create_trial

EVERY = {"save_interval": 1}


def train(session: Any, net: Net, steps: int) -> None:
    for x, y in batches(steps):
        session.run(net.train, net.feed(x, y))


def job(hook: Any) -> list[weakref.ref[Any]]:
    """Train in a plain session, a step more after the hook is closed; what must be free afterwards."""
    optimizers = []

    def wrap(optimizer: Any) -> Any:
        optimizers.append(hook.wrap_optimizer(optimizer))
        return optimizer

    net = Net(wrap)
    with v1.Session(graph=net.graph) as session:
        session = hook.wrap_session(session)
        session.run(net.init)
        train(session, net, 2)
        assert "run" in vars(session)
        hook.close()
        assert "run" not in vars(session)
        assert not {"compute_gradients", "apply_gradients"} & set(vars(optimizers[0]))
        train(session, net, 1)
        return [weakref.ref(session), weakref.ref(net.graph), weakref.ref(optimizers[0])]


def test_a_closed_hook_leaves_nothing_on_sessions_and_optimizers(out: str) -> None:
    hook = tt.SessionHook(out, include_collections=["gradients", "weights"], save_config=EVERY)
    parts = job(hook)
    gc.collect()
    assert [part() for part in parts] == [None] * 3
    assert create_trial(out).steps() == [1, 2]


@pytest.mark.parametrize("before", [False, True])
def test_a_method_that_somebody_else_wrapped_stays(out: str, before: bool) -> None:
    hook, net = tt.SessionHook(out, save_config=EVERY), Net()
    with v1.Session(graph=net.graph) as session:
        if not before:
            hook.wrap_session(session)
        inner = session.run
        session.run = own = lambda *args, **kwargs: inner(*args, **kwargs)
        hook.wrap_session(session)
        session.run(net.init)
        hook.close()
        session.run(net.init)
        assert session.run is own


def test_a_tensor_of_a_graph_that_is_saved_by_a_call_leaves_the_hook_on(
    out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    hook, net = tt.SessionHook(out, save_config=EVERY), Net()
    hook.save_tensor("tensor", net.loss)
    with net.session([hook]) as session:
        train(session, net, 1)
    hook.close()
    assert create_trial(out).tensor_names() == [LOSS]
    assert json.loads(Path(out, "end", "worker_0.json").read_text())["failure"] is None


@pytest.mark.parametrize("inner", [True, False], ids=["inside", "around"])
@pytest.mark.parametrize("loss_scale", [1024.0, "dynamic"], ids=str)
def test_gradients_of_a_scaled_loss_are_unscaled(out: str, inner: bool, loss_scale: Any) -> None:
    scaled = v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    hook = tt.SessionHook(out, include_collections=["gradients"], save_config=EVERY)

    def wrap(optimizer: Any) -> Any:
        if inner:
            return scaled(hook.wrap_optimizer(optimizer), loss_scale)
        return hook.wrap_optimizer(scaled(optimizer, loss_scale))

    plain = Net()
    with plain.session([]) as session:
        x, y = batches(1)[0]
        expected, loss = session.run([plain.gradient, plain.loss], plain.feed(x, y))
    net = Net.__new__(Net)
    with contextlib.suppress(ValueError):  # it searches for the operation that updates, which is inside a condition
        net.__init__(wrap)  # type: ignore[misc]
    net.kernel = next(each for each in net.graph.get_collection("trainable_variables") if "logits/kernel" in each.name)
    with net.session([hook]) as session:
        train(session, net, 1)
    trial = closed(hook)
    assert trial.tensor(LOSS).value(0) == pytest.approx(loss, rel=1e-5)
    found = [trial.tensor(name).value(0) for name in trial.tensor_names(collection="gradients")]
    kernels = [value for value in found if value.shape == expected.shape]
    assert kernels
    for value in kernels:
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-6)
    assert trial.tensor_names(collection="losses") == [LOSS]
