"""Keras models of a script that knows nothing of hooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import pytest

from support.keras_training import data, small
from tensortrial import create_trial
from tensortrial.hooks.core.current_hook import del_hook
from tensortrial.hooks.keras import launched
from tensortrial.hooks.tensorflow import KerasHook
from tensortrial.mode import modes


@pytest.fixture
def activated(out: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TENSORTRIAL_LAUNCH", json.dumps({"name": "train", "out_dir": out}))
    methods = {name: getattr(keras.Model, name) for name in ("fit", "evaluate", "predict")}
    launched.activate()
    yield
    for name, method in methods.items():
        setattr(keras.Model, name, method)


@pytest.mark.usefixtures("activated")
def test_the_first_model_that_trains_is_saved(out: str) -> None:
    x, y = data(2)
    first: Any = small()
    first.predict(x[:4], verbose=0)
    first.fit(x, y, batch_size=32, epochs=2, validation_data=(x[:8], y[:8]), verbose=0)
    first.evaluate(x[:8], y[:8], verbose=0)
    small().fit(x, y, batch_size=32, verbose=0)
    del_hook()
    trial = create_trial(out)
    assert len(trial.steps(modes.TRAIN)) == 4
    assert trial.steps(modes.EVAL) == [0, 1, 2]
    assert trial.steps(modes.PREDICT) == []
    assert trial.tensor("loss").steps(modes.TRAIN) == [0, 1, 2, 3]
    assert trial.tensor_names(collection="gradients")


@pytest.mark.usefixtures("activated")
def test_a_callback_of_the_script_s_own_is_the_only_one(out: str, tmp_path: Path) -> None:
    x, y = data(1)
    hook = KerasHook(str(tmp_path / "own"))
    small().fit(x, y, batch_size=32, verbose=0, callbacks=[hook])
    hook.close()
    assert not Path(out).exists()
    assert create_trial(str(tmp_path / "own")).steps(modes.TRAIN)
