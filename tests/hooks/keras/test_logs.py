"""Values in Keras' logs that are not numbers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")
import tensortrial.hooks.tensorflow as tt  # noqa: E402

EVERY = tt.SaveConfig(save_interval=1)


def ragged() -> Any:
    return tf.ragged.constant([[1.0, 2.0], [3.0]])


def uneven() -> Any:
    return [[1.0, 2.0], [3.0]]


def missing() -> Any:
    return None


def sparse() -> Any:
    return tf.sparse.from_dense([[1.0, 0.0]])


@pytest.mark.parametrize("in_graph", [False, True], ids=["eager", "tf.function"])
@pytest.mark.parametrize("make", [ragged, sparse, uneven, missing])
@pytest.mark.usefixtures("lenient")
def test_a_tape_log_that_is_no_array_is_logged_once_and_the_hook_stays_on(
    make: Callable[[], Any], in_graph: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    odd = make()
    hook = tt.KerasHook(tmp_path / "run", save_config=EVERY)

    def step() -> None:
        with hook.wrap_tape(tf.GradientTape()) as tape:
            x = tf.constant(3.0)
            tape.watch(x)
            loss = x * x
        tape.gradient(loss, x)
        hook.save_tape_logs({"odd": odd, "accuracy": 0.5})

    run = tf.function(step) if in_graph else step
    for _ in range(3):
        run()
    hook.close()
    assert [each.message.partition(":")[0] for each in caplog.records] == ["tensor 'odd' is not saved"]
    trial = tt.create_trial(str(tmp_path / "run"))
    assert trial.tensor_names() == ["accuracy", "loss"]
    assert trial.tensor("accuracy").steps() == [0, 1, 2]


@pytest.mark.usefixtures("lenient")
def test_a_ragged_metric_of_fit_is_logged_once_and_names_the_next_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keras = pytest.importorskip("keras")
    hook = tt.KerasHook(tmp_path / "run", save_config=EVERY)
    hook.set_model(keras.Sequential([keras.layers.Dense(1)]))
    hook.on_train_begin()
    for batch in range(3):
        hook.on_train_batch_begin(batch)
        hook.on_train_batch_end(batch, {"loss": 1.0, "odd": ragged()})
    hook.on_train_end()
    hook.close()
    assert len(caplog.records) == 1
    assert "tensor 'odd' is not saved: a RaggedTensor is not one array" in caplog.text
    assert "hook.save_tensor" in caplog.text
    assert tt.create_trial(str(tmp_path / "run")).tensor("loss").steps(tt.modes.TRAIN) == [0, 1, 2]
