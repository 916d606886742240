"""Keras in processes of its own, by its backends of torch, which needs no TensorFlow, and of JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent

import keras
import pytest

TESTS = Path(__file__).parents[2]

TORCH = """
    import sys
    sys.modules["tensorflow"] = None  # as if it were not installed
    import keras
    import numpy as np
    import torch
    import tensortrial.hooks.keras as tt
    from support.keras_training import data, fit, small

    model = small(metrics=[])
    hook = tt.KerasHook(sys.argv[1], save_all=True, save_config=tt.SaveConfig(save_interval=1))
    x, y = data(1)
    weight = model.get_layer("fc1").kernel
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(y).long()).backward()
    gradient = weight.value.grad.detach().cpu().numpy().copy()
    model.zero_grad()
    before = keras.ops.convert_to_numpy(weight).copy()
    hidden = x @ before + model.get_layer("fc1").get_weights()[1]
    fit(model, 3, hook)
    model.predict(x, verbose=0, callbacks=[hook])
    hook.close()
    trial = tt.create_trial(sys.argv[1])
    expected = {"fc1/weights/fc1/kernel:0": before, "gradients/fc1/kernelGrad": gradient, "fc1/outputs": hidden}
    for name, value in {**expected, "labels_0": y, "model_inputs_0": x}.items():
        assert trial.tensor(name).steps(tt.modes.TRAIN) == [0, 1, 2], name
        found = trial.tensor(name).value(0, tt.modes.TRAIN)
        np.testing.assert_allclose(found.reshape(value.shape), value, rtol=1e-4, atol=1e-6, err_msg=name)
    assert trial.tensor("predictions_0").steps(tt.modes.PREDICT) == [0]
"""

TORCH_COMPILED = """
    import functools, sys
    sys.modules["tensorflow"] = None  # as if it were not installed
    import numpy as np
    import torch
    torch.compile = functools.partial(torch.compile, backend="eager")  # it rounds like Python
    import tensortrial.hooks.keras as tt
    from support.keras_training import data, fit, small

    plain = small(metrics=[])  # compiling it would take half a minute
    fit(plain, 2)
    model = small(metrics=[], jit_compile=True)
    kernel, bias = model.get_weights()[:2]
    x, y = data(1)
    torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(y).long()).backward()
    gradient = model.get_layer("fc1").kernel.value.grad.numpy().copy()
    model.zero_grad()
    hook = tt.KerasHook(sys.argv[1], include_collections=["gradients", "layers", "labels"], save_interval=1)
    fit(model, 2, hook)
    hook.close()
    for found, weight in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(found, weight)
    trial = tt.create_trial(sys.argv[1])
    for name, value in {"fc1/outputs": x @ kernel + bias, "gradients/fc1/kernelGrad": gradient, "labels_0": y}.items():
        assert trial.tensor(name).steps(tt.modes.TRAIN) == [0, 1], name
        found = trial.tensor(name).value(0, tt.modes.TRAIN)
        np.testing.assert_allclose(found.reshape(value.shape), value, rtol=1e-4, atol=1e-6, err_msg=name)
"""

JAX = """
    import logging, sys
    import tensortrial.hooks.keras as tt
    from support.keras_training import fit, small

    said = []
    logging.getLogger("tensortrial.hooks").addHandler(logging.Handler())
    logging.getLogger("tensortrial.hooks").handlers[0].emit = lambda record: said.append(record.getMessage())
    hook = tt.KerasHook(sys.argv[1], save_all=True, save_config=tt.SaveConfig(save_interval=1))
    fit(small(), 3, hook)
    hook.close()
    trial = tt.create_trial(sys.argv[1])
    assert trial.tensor("loss").steps(tt.modes.TRAIN) == [0, 1, 2]
    assert set(trial.tensor_names()) == {"accuracy", "loss"}, trial.tensor_names()
    assert any("only losses and metrics are saved on Keras' backend" in sentence for sentence in said), said
"""


def run(folder: Path, script: str, **environment: str) -> None:
    """Run a script with the folder of its run as the argument."""
    (folder / "train.py").write_text(dedent(script))
    path = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(folder / "train.py"), str(folder / "run")],
        env={**os.environ, "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(keras.__version__ < "3", reason="Keras 2 has no other backend than TensorFlow")
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed here")
def test_all_tensors_are_saved_on_the_torch_backend(tmp_path: Path) -> None:
    run(tmp_path, TORCH, KERAS_BACKEND="torch", TENSORTRIAL_STRICT="1")


@pytest.mark.skipif(keras.__version__ < "3", reason="Keras 2 has no other backend than TensorFlow")
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed here")
def test_training_under_torch_compile_is_saved_without_a_change(tmp_path: Path) -> None:
    run(tmp_path, TORCH_COMPILED, KERAS_BACKEND="torch", TENSORTRIAL_STRICT="1")


@pytest.mark.skipif(keras.__version__ < "3", reason="Keras 2 has no other backend than TensorFlow")
@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed here")
def test_on_jax_only_what_keras_logs_is_saved(tmp_path: Path) -> None:
    run(tmp_path, JAX, KERAS_BACKEND="jax", TENSORTRIAL_STRICT="1")
