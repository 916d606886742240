"""The index says in which order a step of Keras computed its tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from tensortrial.config.save_config import SaveConfig

keras: Any = pytest.importorskip("keras")


@pytest.mark.parametrize("eagerly", [True, False], ids=["eager", "graph"])
def test_tensors_of_a_step_are_in_the_order_of_execution(tmp_path: Path, eagerly: bool) -> None:
    import tensortrial.hooks.tensorflow as tt

    names = ["zulu", "alpha", "mike"]
    model = keras.Sequential([keras.Input((4,)), *(keras.layers.Dense(4, name=name) for name in names)])
    model.compile("sgd", "mse", run_eagerly=eagerly)
    hook = tt.KerasHook(
        str(tmp_path / "run"), save_all=True, save_config=SaveConfig(save_interval=1), include_workers="all"
    )
    data = np.ones((8, 4), np.float32)
    model.fit(data, data, batch_size=4, epochs=1, verbose=0, callbacks=[hook])
    hook.close()
    with tensortrial.create_trial(tmp_path / "run") as trial:
        query = """select name from tensors where mode = 'TRAIN' and mode_step = 1 order by "order" """
        found = [name for (name,) in trial.sql(query).fetchall()]
    assert [each for each in found if not each.startswith("optimizer/")] == [
        *(f"{name}/weights/{name}/{kind}:0" for name in names for kind in ("kernel", "bias")),
        "model_inputs_0",
        *(f"{name}/{kind}" for name in names for kind in ("inputs", "outputs")),
        "predictions_0",
        "labels_0",
        "batch_loss",
        *(f"gradients/{name}/{kind}Grad" for name in reversed(names) for kind in ("bias", "kernel")),
        "loss",
    ]
