"""MXNet on several devices, where one batch is one step, and in mixed precision."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import tensortrial.hooks.mxnet as tt
from support.gluon_training import BATCH, Net, batches, softmax_loss
from support.made_hooks import closed
from tensortrial import create_trial

DEVICES = [mx.cpu(0), mx.cpu(1)]
GRADIENT = "gradient/net_fc1_weight"


class Job:
    """A training whose batches are split over devices. It remembers the gradients of each."""

    def __init__(self, hook: Any, devices: Any = DEVICES) -> None:
        mx.random.seed(0)
        self.devices, self.net, self.loss = devices, Net(), softmax_loss()
        self.net.initialize(mx.init.Xavier(), ctx=devices)
        self.trainer = gluon.Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.1})
        hook.register_block(self.net)
        hook.register_block(self.loss)

    def parts(self, *arrays: Any) -> list[Any]:
        return [gluon.utils.split_and_load(array, self.devices) for array in arrays]

    def train(self, steps: int, together: bool = True) -> list[list[Any]]:
        found = []
        for batch in batches(steps):
            losses = []
            for x, y in zip(*self.parts(*batch), strict=True):
                with autograd.record():
                    losses.append(self.loss(self.net(x), y))
                if not together:
                    losses[-1].backward()
            if together:
                autograd.backward(losses)
            found.append([gradient.asnumpy() for gradient in self.net.fc1.weight.list_grad()])
            self.trainer.step(BATCH)
        return found


@pytest.mark.parametrize("together", [True, False], ids=["one backward", "a backward each"])
def test_a_batch_on_several_devices_is_one_step_with_the_gradients_of_each(make_hook: Any, together: bool) -> None:
    hook = make_hook(include_collections=["weights", "gradients"], save_config=tt.SaveConfig(save_interval=2))
    expected = Job(hook).train(5, together)
    trial = closed(hook)
    assert trial.steps() == [0, 2, 4]
    for step in trial.steps():
        for name, gradient in zip((GRADIENT, f"{GRADIENT}/cpu(1)"), expected[step], strict=True):
            np.testing.assert_array_equal(trial.tensor(name).value(step), gradient)
        for number in range(2):
            assert trial.tensor(f"loss_output_{number}").shape(step) == (BATCH // 2,)
    assert trial.tensor(f"{GRADIENT}/cpu(1)").steps() == trial.tensor("net_fc1_weight").steps() == [0, 2, 4]
    assert {GRADIENT, f"{GRADIENT}/cpu(1)"} < set(trial.tensor_names(collection="gradients"))


def test_a_batch_that_fills_only_some_devices_is_a_step(make_hook: Any, out: str) -> None:
    hook = make_hook()
    job = Job(hook)
    x, y = batches(1)[0]
    hook.set_mode(tt.modes.EVAL)
    for devices in (DEVICES, DEVICES[:1], DEVICES[:1], DEVICES, DEVICES[1:], DEVICES[1:]):
        for device in devices:
            job.loss(job.net(x.as_in_context(device)), y.as_in_context(device))
    hook.close()
    # The batch of the second device alone belongs to nothing before it: both devices have run by then.
    trial = create_trial(out)
    assert [len(trial.tensor_names(step=step, mode=tt.modes.EVAL)) for step in range(6)] == [2, 1, 1, 2, 1, 1]


def test_a_model_that_moves_to_another_device_begins_a_step_there(make_hook: Any) -> None:
    hook = make_hook()
    job = Job(hook, DEVICES[:1])
    x, y = batches(1)[0]
    for device in DEVICES:
        job.net.collect_params().reset_ctx(device)
        job.loss(job.net(x.as_in_context(device)), y.as_in_context(device))
    assert closed(hook).steps() == [0, 1]


# Mixed precision changes MXNet's functions for the whole process.
SCALED = """
import sys, warnings
import mxnet as mx
from mxnet import autograd, gluon
from mxnet.contrib import amp
from support.gluon_training import BATCH, batches, seeded, softmax_loss
import numpy as np
import tensortrial.hooks.mxnet as tt

# A CPU has no half precision; the loss is scaled all the same.
amp.init(target_precision_ops=[])
hook = tt.Hook(sys.argv[1], include_collections=["gradients"], save_config=tt.SaveConfig(save_interval=1))
net, loss = seeded(), softmax_loss()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, update_on_kvstore=False)
amp.init_trainer(trainer)
hook.register_block(net)
hook.register_block(loss)
for step, (x, y) in enumerate(batches(2)):
    with autograd.record():
        value = loss(net(x), y)
        with amp.scale_loss(value, trainer) as scaled:
            autograd.backward(scaled)
    gradient = net.fc2.weight.grad().asnumpy() / trainer._amp_loss_scaler.loss_scale
    np.save(f"{sys.argv[1]}-{step}.npy", gradient)
    np.save(f"{sys.argv[1]}-loss-{step}.npy", value.asnumpy())
    assert trainer._amp_loss_scaler.loss_scale > 1000
    trainer.step(BATCH)
hook.close()
"""


def test_gradients_of_a_loss_that_amp_scales_are_unscaled(tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    command = [sys.executable, "-c", textwrap.dedent(SCALED), out]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    trial = create_trial(out)
    for step in range(2):
        found = trial.tensor("gradient/net_fc2_weight").value(step)
        np.testing.assert_allclose(found, np.load(f"{out}-{step}.npy"), rtol=1e-6)
        np.testing.assert_array_equal(trial.tensor("loss_output_0").value(step), np.load(f"{out}-loss-{step}.npy"))
