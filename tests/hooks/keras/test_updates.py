"""What a batch of `fit` changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from support import keras_training as kt
from tensortrial import create_trial
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig
from tensortrial.mode import modes

Make = Callable[..., Any]
EACH = SaveConfig(save_interval=1)


def trained(make_hook: Make, batches: int = 3, optimizer: Any = "sgd", **options: Any) -> tuple[Any, Any]:
    """Train with updates as raw values. Return the model and its trial."""
    hook = make_hook(include_collections=["updates", "weights", "biases"], **{"save_config": EACH, **options})
    hook.get_collection("updates").reduction_config = ReductionConfig(norms=["l2"], save_raw_tensor=True)
    model = kt.small(optimizer=optimizer)
    kt.fit(model, batches, hook)
    hook.close()
    return model, create_trial(hook.out_dir)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_an_update_is_what_a_step_adds_to_a_weight(make_hook: Make, optimizer: str) -> None:
    model, trial = trained(make_hook, optimizer=optimizer)
    weights = {
        f"{layer.name}/weights/{layer.name}/{key}:0": getattr(layer, key)
        for layer in (model.get_layer("fc1"), model.get_layer("fc2"))
        for key in ("kernel", "bias")
    }
    for name, end in weights.items():
        tensor, update = trial.tensor(name), trial.tensor(f"update/{name}")
        assert update.steps(modes.TRAIN) == [0, 1, 2]
        saved = [tensor.value(step, modes.TRAIN) for step in range(3)]
        for step, (before, after) in enumerate(zip(saved, [*saved[1:], np.asarray(end)], strict=True)):
            found = update.value(step, modes.TRAIN)
            assert np.array_equal(found, after - before)
            assert np.any(found)
            ratio = trial.tensor(f"update_ratio/{name}").value(step, modes.TRAIN)
            size = np.linalg.norm(before)  # 0 of a bias in the first step
            assert ratio == (pytest.approx(np.linalg.norm(found) / size, rel=1e-5) if size else np.inf)


def test_by_default_the_norms_of_updates_are_saved_at_due_steps_of_training(make_hook: Make) -> None:
    hook = make_hook(include_collections=["updates"], save_config=SaveConfig(save_interval=2))
    model = kt.small()
    x, y = kt.data(3)
    model.fit(x, y, batch_size=kt.BATCH, epochs=1, verbose=0, callbacks=[hook], validation_data=(x, y))
    hook.close()
    trial = create_trial(hook.out_dir)
    names = trial.tensor_names(collection="updates")
    assert len(names) == 2 * len(model.trainable_weights)
    for name in names:
        tensor = trial.tensor(name)
        assert (tensor.steps(modes.TRAIN), tensor.steps(modes.EVAL)) == ([0, 2], [])
        assert tensor.reduction_values(0, modes.TRAIN).keys() == (
            {("l2", False)} if name.startswith("update/") else set()
        )


def test_a_frozen_weight_has_no_update(make_hook: Make) -> None:
    hook = make_hook(include_collections=["updates"], save_config=EACH)
    model = kt.small()
    model.layers[0].trainable = False
    model.compile("sgd", loss=model.loss)
    kt.fit(model, 1, hook)
    hook.close()
    names = create_trial(hook.out_dir).tensor_names(collection="updates")
    weights = "fc2/weights/fc2/bias:0", "fc2/weights/fc2/kernel:0"
    assert names == [f"{kind}/{weight}" for kind in ("update", "update_ratio") for weight in weights]
