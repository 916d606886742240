"""Scripts for smdebug's hooks of TensorFlow and MXNet, each in the environment that has the framework."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

KERAS = """
import sys
import numpy as np
import tensorflow as tf
import smdebug.tensorflow as smd
from smdebug.tensorflow import KerasHook, SaveConfig, get_hook, modes
from smdebug.tensorflow.collection import CollectionKeys
from smdebug.tensorflow.keras import KerasHook as Same
from smdebug.tensorflow.session import SessionHook

print(Same is KerasHook, get_hook(hook_type="keras", create_if_not_exists=True))
hook = KerasHook(sys.argv[1], save_config=SaveConfig(save_interval=2), include_collections=[CollectionKeys.WEIGHTS])
layers = [tf.keras.layers.Dense(4, name="fc1"), tf.keras.layers.Dense(2, name="fc2")]
model = tf.keras.Sequential(layers)
model.compile(optimizer=hook.wrap_optimizer(tf.keras.optimizers.SGD(0.1)), loss="mse")
model.fit(np.ones((8, 3)), np.ones((8, 2)), batch_size=2, verbose=0, callbacks=[hook])

@tf.function
def inside(x):
    hook.save_scalar("inside", x, sm_metric=True)
    return x

inside(tf.constant(2.0))
hook.record_tensor_value("recorded", np.ones(2))
print(int(hook.step), hook.mode_steps[modes.TRAIN], get_hook() is hook, isinstance(hook, smd.KerasHook))
hook.close()
trial = smd.create_trial(sys.argv[1])
print(trial.tensor_names(collection="sm_metrics"), trial.tensor("scalar/inside").value(3), trial.loaded_all_steps)
print(trial.tensor_names(collection="weights"), trial.steps(mode=modes.TRAIN))
print(trial.tensor("recorded").steps(), trial.tensor("loss").steps(), trial.tensor("loss").value(3).shape)

hook = KerasHook(sys.argv[1] + "-tape", save_config=SaveConfig(save_interval=1))
optimizer = hook.wrap_optimizer(tf.keras.optimizers.SGD(0.1))

@tf.function
def step(x):
    with hook.wrap_tape(tf.GradientTape()) as tape:
        loss = tf.reduce_sum(model(x))
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))

step(tf.ones((2, 3)))
hook.close()
print(smd.create_trial(sys.argv[1] + "-tape").tensor("loss").steps())
"""
KERAS_PRINTED = """\
True None
3 3 True True
['scalar/inside'] [2.] True
['fc1/weights/fc1/kernel:0', 'fc2/weights/fc2/kernel:0'] [0, 2, 3]
[3] [0, 2, 3] (1,)
[0]
"""
MXNET = """
import sys
import mxnet as mx
import smdebug.mxnet as smd
from mxnet import autograd, gluon
from smdebug.mxnet.hook import Hook

print(smd.get_hook())
hook = Hook(sys.argv[1], save_config=smd.SaveConfig(save_interval=1), include_collections=["weights"])
net, loss = gluon.nn.Dense(2), gluon.loss.L2Loss()
net.initialize()
hook.register_block(net)
hook.register_block(loss)
trainer = gluon.Trainer(net.collect_params(), "sgd")
for _ in range(2):
    with autograd.record():
        value = loss(net(mx.nd.ones((3, 4))), mx.nd.ones((3, 2)))
    value.backward()
    trainer.step(3)
hook.save_scalar("acc", 0.5)
hook._write_raw_tensor_simple("weight_raw", mx.nd.ones((2,)))
print(int(hook.step), hook.last_saved_step, smd.get_hook() is hook)
hook.close()
trial = smd.create_trial(sys.argv[1])
print(trial.tensor("scalar/acc").value(1), trial.tensor_names(regex="weight"))

class Own(Hook):
    def forward_hook(self, block, inputs, outputs):
        pass

try:
    Own(sys.argv[1] + "2")
except ValueError as e:
    print(e)
"""
MXNET_PRINTED = """\
None
1 1 True
[0.5] ['dense0_weight', 'weight_raw']
Own has the method forward_hook, which is not called here: call block.register_forward_hook with a function that calls \
hook.save_tensor(name, array)
"""


def run(tmp_path: Path, program: str, framework: str) -> str:
    """Return what a program prints that runs with the aliases."""
    if find_spec(framework) is None:
        pytest.skip(f"this environment has no {framework}")
    (tmp_path / "train.py").write_text(program)
    command = [sys.executable, "-m", "tensortrial.smdebug", "train.py", str(tmp_path / "run")]
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_script_for_keras_runs_unchanged(tmp_path: Path) -> None:
    assert run(tmp_path, KERAS, "tensorflow") == KERAS_PRINTED


def test_a_script_for_mxnet_runs_unchanged(tmp_path: Path) -> None:
    assert run(tmp_path, MXNET, "mxnet") == MXNET_PRINTED
