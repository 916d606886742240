"""What the tensors of a Keras model are called, that their values are the right ones, and what Keras alone has."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

import tensortrial.hooks.tensorflow as tt
from support.keras_training import BATCH, KERAS_3, classifier_loss, compiled, data, evaluate, fit, gradients, small
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.errors import ConfigurationError

TRAIN, EVAL, PREDICT = tt.modes.TRAIN, tt.modes.EVAL, tt.modes.PREDICT
layers = keras.layers


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each time that a model's train step is traced."""
    traced: list[str] = []
    original = keras.Model.train_step

    def train_step(self: Any, *args: Any) -> Any:
        traced.append(self.name)
        return original(self, *args)

    monkeypatch.setattr(keras.Model, "train_step", train_step)
    return traced


def names(out: str, **options: Any) -> set[str]:
    return set(create_trial(out).tensor_names(**options))


def value(out: str, name: str, step: int = 0, mode: Any = TRAIN) -> np.ndarray[Any, Any]:
    return create_trial(out).tensor(name).value(step, mode)


def weights(model: Any) -> list[Any]:
    return [np.array(each) for each in model.get_weights()]


class TestNames:
    def test_all_tensors_of_a_small_model_are_named(self, make_hook: Any, out: str) -> None:
        hook = make_hook(save_all=True)
        fit(small(optimizer=keras.optimizers.SGD(0.1)), 2, hook)
        hook.close()
        parameters = {f"{layer}/weights/{layer}/{leaf}:0" for layer in ("fc1", "fc2") for leaf in ("kernel", "bias")}
        expected = {
            "loss",
            "accuracy",
            "batch_loss",
            "model_inputs_0",
            "labels_0",
            "predictions_0",
            *parameters,
            *(f"gradients/{layer}/{leaf}Grad" for layer in ("fc1", "fc2") for leaf in ("kernel", "bias")),
            *(f"{layer}/{kind}" for layer in ("fc1", "relu", "fc2") for kind in ("inputs", "outputs")),
        }
        found = names(out)
        assert {name for name in found if not name.startswith("optimizer/")} == expected
        assert all(create_trial(out).tensor(name).steps(TRAIN) == [0, 1] for name in found)
        assert names(out, collection="weights") == {name for name in parameters if "kernel" in name}
        assert names(out, collection="biases") == {name for name in parameters if "bias" in name}
        assert names(out, collection="losses") == {"loss"}
        assert names(out, collection="metrics") == {"accuracy"}
        assert names(out, collection="outputs") == names(out, collection="predictions") == {"predictions_0"}
        assert len(names(out, collection="layers")) == 6

    def test_nested_and_shared_layers_with_several_inputs_and_outputs_are_named(self, make_hook: Any, out: str) -> None:
        inner = keras.Sequential([layers.Input((4,)), layers.Dense(4, name="fc")], name="encoder")
        other = keras.Sequential([layers.Input((4,)), layers.Dense(4, name="fc")], name="decoder")
        shared = layers.Dense(4, name="shared")
        a, b = layers.Input((4,), name="a"), layers.Input((4,), name="b")
        hidden = layers.Add(name="add")([shared(inner(a)), shared(other(b))])
        first, second = layers.Dense(1, name="first")(hidden), layers.Dense(2, name="second")(hidden)
        model = compiled(keras.Model([a, b], [first, second]), loss=["mse", "mse"], metrics=[])
        hook = make_hook(save_all=True)
        x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
        targets = [x[:, :1], x[:, :2]]
        before = weights(shared)
        model.fit([x, x + 1], targets, batch_size=8, shuffle=False, verbose=0, callbacks=[hook])
        hook.close()
        found = names(out)
        assert {
            "encoder/weights/encoder/fc/kernel:0",
            "decoder/weights/decoder/fc/kernel:0",
            "gradients/encoder/fc/kernelGrad",
            "encoder/fc/outputs",
            "shared/outputs",
            "shared/outputs_1",
            "add/inputs",
            "add/inputs_1",
            "model_inputs_0",
            "model_inputs_1",
            "labels_0",
            "labels_1",
            "predictions_0",
            "predictions_1",
        } < found
        trial = create_trial(out)
        assert [each.shape for each in trial.inputs(0, TRAIN)] == [(8, 4), (8, 4)]
        for kind, expected in ((trial.inputs, [x, x + 1]), (trial.labels, targets)):
            for array, other_array in zip(kind(0, TRAIN), expected, strict=True):
                np.testing.assert_array_equal(array, other_array)
        assert [each.shape for each in trial.predictions(0, TRAIN)] == [(8, 1), (8, 2)]
        np.testing.assert_allclose(
            value(out, "shared/outputs_1"), value(out, "decoder/outputs") @ before[0] + before[1], rtol=1e-5, atol=1e-6
        )
        assert {"first_loss", "second_loss"} < names(out, collection="losses")

    def test_inputs_with_keys_are_named_by_their_keys(self, make_hook: Any, out: str) -> None:
        a, b = layers.Input((2,), name="age"), layers.Input((2,), name="size")
        model = compiled(
            keras.Model({"age": a, "size": b}, layers.Dense(1)(layers.Add()([a, b]))), loss="mse", metrics=[]
        )
        hook = make_hook(include_regex="^model_inputs_age")
        x = {"age": np.ones((4, 2), "float32"), "size": np.zeros((4, 2), "float32")}
        for _ in range(2):
            model.fit(x, np.ones((4, 1)), verbose=0, callbacks=[hook])
        hook.close()
        assert names(out, collection="default") == {"model_inputs_age"}
        np.testing.assert_array_equal(value(out, "model_inputs_age", 1), x["age"])


def scaled(optimizer: Any) -> Any:
    """The optimizer, keeping float16 from running over."""
    if KERAS_3:
        return keras.optimizers.LossScaleOptimizer(optimizer)
    return keras.mixed_precision.LossScaleOptimizer(optimizer)


class TestValues:
    @pytest.mark.parametrize(
        "options", [{}, {"run_eagerly": True}, {"jit_compile": True}], ids=["graph", "eager", "xla"]
    )
    def test_saved_values_are_those_of_the_step(self, make_hook: Any, out: str, options: Any) -> None:
        model, (x, y) = small(**options), data(1)
        before = weights(model)
        expected, hidden = gradients(model, x, y), np.asarray(model.get_layer("fc1")(x))
        logits = np.asarray(model(x))
        hook = make_hook(save_all=True)
        fit(model, 2, hook)
        hook.close()
        kernel, _, _, bias = before
        np.testing.assert_array_equal(value(out, "fc1/weights/fc1/kernel:0"), kernel)
        np.testing.assert_array_equal(value(out, "fc2/weights/fc2/bias:0"), bias)
        np.testing.assert_array_equal(value(out, "model_inputs_0"), x)
        np.testing.assert_array_equal(value(out, "labels_0").ravel(), y)
        np.testing.assert_allclose(value(out, "fc1/outputs"), hidden, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(value(out, "relu/outputs"), np.maximum(hidden, 0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(value(out, "predictions_0"), logits, rtol=1e-5, atol=1e-5)
        for name, gradient in expected.items():
            np.testing.assert_allclose(value(out, f"gradients/{name}Grad"), gradient, rtol=1e-4, atol=1e-6)
        loss = float(classifier_loss()(y, logits))
        assert value(out, "loss") == pytest.approx(loss, rel=1e-5)
        # Keras reports the mean over the epoch so far; this is the batch's own.
        both = [float(value(out, "batch_loss", step)) for step in range(2)]
        assert both[0] == pytest.approx(loss, rel=1e-5)
        assert value(out, "loss", 1) == pytest.approx(np.mean(both), rel=1e-5)
        # SGD: the weights of the next step are these less the rate times the gradient.
        moved = value(out, "fc1/weights/fc1/kernel:0", 0) - 0.1 * value(out, "gradients/fc1/kernelGrad", 0)
        np.testing.assert_allclose(value(out, "fc1/weights/fc1/kernel:0", 1), moved, rtol=1e-4, atol=1e-6)

    def test_values_are_saved_in_half_precision(self, make_hook: Any, out: str) -> None:
        inputs = layers.Input((64,))
        hidden = layers.Dense(8, name="half", dtype="mixed_bfloat16")(inputs)
        model = compiled(keras.Model(inputs, layers.Dense(10, name="full")(hidden)))
        hook = make_hook(save_all=True)
        fit(model, 1, hook)
        hook.close()
        assert value(out, "half/outputs").dtype == ml_dtypes.bfloat16
        assert value(out, "half/weights/half/kernel:0").dtype == np.float32
        assert value(out, "gradients/half/kernelGrad").dtype == np.float32

    def test_gradients_are_saved_without_the_scale_of_float16(self, make_hook: Any, out: str) -> None:
        model, (x, y) = small(optimizer=scaled(keras.optimizers.SGD(0.1))), data(1)
        expected = gradients(model, x, y)
        hook = make_hook(include_collections=["gradients"])
        fit(model, 1, hook)
        hook.close()
        for name, gradient in expected.items():
            np.testing.assert_allclose(value(out, f"gradients/{name}Grad"), gradient, rtol=1e-4, atol=1e-6)

    def test_sparse_gradients_are_saved(self, make_hook: Any, out: str) -> None:
        model = keras.Sequential(
            [layers.Input((3,)), layers.Embedding(20, 4, name="words"), layers.Flatten(), layers.Dense(1)]
        )
        compiled(model, loss="mse", metrics=[])
        hook = make_hook(include_collections=["gradients"])
        model.fit(np.array([[1, 2, 2], [3, 1, 0]]), np.ones((2, 1)), verbose=0, callbacks=[hook])
        hook.close()
        gradient = value(out, "gradients/words/embeddingsGrad")
        assert gradient.shape == (20, 4)
        assert np.flatnonzero(gradient.any(axis=1)).tolist() == [0, 1, 2, 3]

    def test_saved_values_of_variables_do_not_change_when_training_goes_on(self, make_hook: Any, out: str) -> None:
        seen: list[Any] = []

        class Watch(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                seen.append(weights(self.model))

        hook = make_hook(include_collections=["weights", "biases", "optimizer_variables"], flush_seconds=3600)
        model, (x, y) = small(optimizer=keras.optimizers.Adam(0.01)), data(4)
        model.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Watch(), hook], epochs=2)
        hook.close()
        for step, (kernel, *_, bias) in enumerate(seen):
            np.testing.assert_array_equal(value(out, "fc1/weights/fc1/kernel:0", step), kernel)
            np.testing.assert_array_equal(value(out, "fc2/weights/fc2/bias:0", step), bias)
        trial = create_trial(out)
        moments = [name for name in trial.tensor_names(collection="optimizer_variables") if "kernel" in name]
        assert len(moments) == 4
        assert all(trial.tensor(name).steps(TRAIN) == list(range(8)) for name in moments)
        assert not any(trial.tensor(name).value(0, TRAIN).any() for name in moments)
        assert all(trial.tensor(name).value(1, TRAIN).any() for name in moments)


class Subclassed(keras.Model):  # type: ignore[misc]
    """Built by its first batch."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = layers.Dense(8, name="fc1"), layers.Dense(10, name="fc2")
        self.norm = layers.BatchNormalization(name="norm")

    def call(self, x: Any, training: bool = False) -> Any:
        return self.fc2(self.norm(self.fc1(x), training=training))


class OwnStep(Subclassed):
    """With a training step of its own, and another optimizer than the one that it is compiled with."""

    own: Any = None
    wrap: Any = staticmethod(lambda tape: tape)

    def train_step(self, batch: Any) -> Any:
        x, y = batch[0], batch[1]
        with self.wrap(tf.GradientTape()) as tape:
            loss = classifier_loss()(y, self(x, training=True))
        variables = self.trainable_variables
        (self.own or self.optimizer).apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"my_loss": loss}


class TestModels:
    def test_models_that_are_built_by_their_first_batch_are_saved(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        keras.utils.set_random_seed(0)
        hook, model = make_hook(save_all=True), compiled(Subclassed())
        fit(model, 2, hook)
        hook.close()
        assert not caplog.records
        trial = create_trial(out)
        for name in (
            "fc1/weights/fc1/kernel:0",
            "norm/weights/norm/moving_mean:0",
            "gradients/fc1/kernelGrad",
            "fc1/outputs",
        ):
            assert trial.tensor(name).steps(TRAIN) == [0, 1], name
        assert not trial.tensor("norm/weights/norm/moving_mean:0").value(0, TRAIN).any()
        outputs = value(out, "model_inputs_0") @ value(out, "fc1/weights/fc1/kernel:0")
        np.testing.assert_allclose(value(out, "fc1/outputs"), outputs, rtol=1e-5, atol=1e-6)

    @pytest.mark.filterwarnings("ignore:`build..` was called on layer")
    def test_a_model_of_which_only_a_part_is_built_is_saved(self, make_hook: Any) -> None:
        hook, model = make_hook(include_collections=["gradients", "updates"]), Subclassed()
        model.fc1 = keras.Sequential([layers.Input((64,)), layers.Dense(8, name="inner")], name="fc1")
        fit(compiled(model), 2, hook)
        trial = closed(hook)
        names = trial.tensor_names(collection="gradients")
        assert len(names) == len(model.trainable_weights)
        assert set(trial.collection("gradients").tensor_names) == set(names)
        assert all(trial.tensor(name).steps(TRAIN) == [0, 1] for name in names)

    @pytest.mark.parametrize("wraps", [False, True])
    def test_models_with_their_own_train_step_are_saved(self, make_hook: Any, out: str, wraps: bool) -> None:
        hook, model = make_hook(include_collections=["gradients", "labels"]), compiled(OwnStep(), metrics=None)
        if wraps:  # a tape inside `fit` needs no wrapper, and begins no step
            model.wrap = hook.wrap_tape
        fit(model, 2, hook)
        hook.close()
        np.testing.assert_array_equal(value(out, "labels_0", 1).ravel(), data(1, begin=1)[1])
        assert create_trial(out).tensor("gradients/fc2/biasGrad").steps(TRAIN) == [0, 1]
        assert names(out, collection="losses") == {"my_loss"}

    def test_the_loss_of_a_model_may_have_other_arguments_than_that_of_keras(self, make_hook: Any, out: str) -> None:
        class OwnLoss(OwnStep):
            def compute_loss(self, guesses: Any) -> Any:
                return tf.reduce_mean(guesses)

            def train_step(self, batch: Any) -> Any:
                return {**super().train_step(batch), "mean": self.compute_loss(guesses=self(batch[0]))}

        hook, model = make_hook(save_all=True), OwnLoss()
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
        fit(model, 2, hook)
        hook.close()
        np.testing.assert_array_equal(value(out, "labels_0", 1).ravel(), data(1, begin=1)[1])
        assert value(out, "batch_loss", 0) == value(out, "mean", 0)

    def test_a_model_whose_optimizer_is_unknown_is_a_warning(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, model = make_hook(include_collections=["gradients"]), compiled(OwnStep(), metrics=None)
        model.own = keras.optimizers.SGD(0.1)
        fit(model, 2, hook)
        assert "optimizer = hook.wrap_optimizer(optimizer)" in caplog.text
        assert not names(out, collection="gradients")
        again, model = make_hook(f"{out}-wrapped", include_collections=["gradients"]), compiled(OwnStep(), metrics=None)
        model.own = again.wrap_optimizer(keras.optimizers.SGD(0.1))
        fit(model, 2, again)
        again.close()
        assert "gradients/fc2/biasGrad" in names(f"{out}-wrapped", collection="gradients")

    def test_a_model_is_unchanged_after_training(self, make_hook: Any) -> None:
        model = small()
        call = layers.Layer.__call__
        fit(model, 1)
        own, attributes = model.train_function, set(vars(model))
        fit(model, 1, make_hook(save_all=True))
        assert model.train_function is own
        assert set(vars(model)) == attributes
        assert layers.Layer.__call__ is call
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).get_weights()[0], model.get_weights()[0])

    def test_models_with_loops_inside_are_saved(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make_hook(save_all=True)
        model = keras.Sequential([layers.Input((8, 8)), layers.SimpleRNN(4, name="rnn"), layers.Dense(10, name="fc")])
        compiled(model)
        x, y = data(1)
        model.fit(x.reshape(-1, 8, 8), y, batch_size=BATCH, verbose=0, callbacks=[hook])
        hook.close()
        assert "inside a loop or a branch of the graph are not saved: rnn/simple_rnn_cell" in caplog.text
        assert {"rnn/outputs", "fc/outputs", "gradients/rnn/simple_rnn_cell/kernelGrad"} < names(out)
        assert "rnn/weights/rnn/simple_rnn_cell/recurrent_kernel:0" in names(out, collection="weights")

    def test_the_next_fit_may_train_another_model(self, make_hook: Any) -> None:
        hook = make_hook(save_all=True)
        fit(small(), 1, hook)
        keras.utils.set_random_seed(1)
        other = compiled(keras.Sequential([layers.Input((64,)), layers.Dense(10, name="only")]))
        fit(other, 1, hook)
        fit(small(), 1, hook)
        trial = closed(hook)
        assert (
            trial.tensor("only/outputs").steps(TRAIN) == trial.tensor("gradients/only/kernelGrad").steps(TRAIN) == [1]
        )
        assert (
            trial.tensor("fc1/outputs").steps(TRAIN) == trial.tensor("gradients/fc1/kernelGrad").steps(TRAIN) == [0, 2]
        )


class TestSteps:
    def test_training_validation_and_prediction_have_their_own_steps(self, make_hook: Any, out: str) -> None:
        hook, model = make_hook(save_all=True), small()
        fit(model, 3, hook, epochs=2, validation_data=data(2, begin=10))
        evaluate(model, 1, hook)
        model.predict(data(2)[0], batch_size=BATCH, verbose=0, callbacks=[hook])
        trial = closed(hook)
        assert trial.modes() == [TRAIN, EVAL, PREDICT]
        for name, steps in {
            "loss": (range(6), range(5), ()),
            "predictions_0": (range(6), range(5), range(2)),
            "fc1/outputs": (range(6), range(5), range(2)),
            "labels_0": (range(6), range(5), ()),
            "gradients/fc1/kernelGrad": (range(6), (), ()),
            "val_loss": ((), (1, 3), ()),
            "val_accuracy": ((), (1, 3), ()),
        }.items():
            for mode, expected in zip((TRAIN, EVAL, PREDICT), steps, strict=True):
                assert trial.tensor(name).steps(mode) == list(expected), (name, mode)
        np.testing.assert_array_equal(value(out, "model_inputs_0", 1, PREDICT), data(1, begin=1)[0])
        assert "val_loss" in names(out, collection="losses")
        assert "val_accuracy" in names(out, collection="metrics")

    def test_data_of_unknown_length_add_no_step_at_their_end(self, make_hook: Any) -> None:
        hook, model = make_hook(save_all=True), small()
        x, y = data(3)
        dataset = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).filter(lambda x, y: True)
        model.fit(dataset, epochs=2, verbose=0, shuffle=False, callbacks=[hook], validation_data=dataset)
        trial = closed(hook)
        for name in ("loss", "fc1/weights/fc1/kernel:0", "gradients/fc1/kernelGrad"):
            assert trial.tensor(name).steps(TRAIN) == list(range(6)), name
        assert trial.steps(TRAIN) == list(range(6))
        # Validation that ended without notice, in Keras 2 only the first, is a separate step.
        assert trial.tensor("loss").steps(EVAL) == [0, 1, 2, 4, 5, 6]
        assert trial.tensor("val_loss").steps(EVAL) == [3, 7 if KERAS_3 else 6]

    def test_steps_are_not_traced_again(self, make_hook: Any, traces: list[str]) -> None:
        hook = make_hook(include_collections=["gradients", "predictions"], save_config=tt.SaveConfig(save_interval=2))
        hook.get_collection("predictions").save_config = tt.SaveConfig(save_interval=3)
        hook.get_collection("losses").save_config = tt.SaveConfig(save_interval=1)
        model, (x, y) = small(), data(6)
        # The last batch is smaller than the others: Keras traces its own step twice for it.
        model.fit(x[:-5], y[:-5], batch_size=BATCH, verbose=0, epochs=2, callbacks=[hook])
        after = len(traces)
        assert after <= 2 + 2 * 4
        model.fit(x[:-5], y[:-5], batch_size=BATCH, verbose=0, epochs=4, callbacks=[hook])
        assert len(traces) == after

    @pytest.mark.parametrize("options", [{"save_all": True}, {"include_regex": "/outputs"}, {"include_regex": "none"}])
    def test_steps_that_save_are_traced_once(self, make_hook: Any, traces: list[str], options: Any) -> None:
        fit(small(), 4, epochs=2)
        without = len(traces)
        hook, model = make_hook(save_config=tt.SaveConfig(save_interval=3), **options), small()
        for _ in range(2):
            fit(model, 4, hook, epochs=2)
        assert len(traces) == 2 * without + 1

    def test_steps_may_be_held(self, make_hook: Any, out: str) -> None:
        hook, model = make_hook(save_all=True), small()
        kernel = weights(model)[0]
        with hook.step():
            fit(model, 2, hook)
        assert closed(hook).steps(TRAIN) == [0]
        np.testing.assert_array_equal(value(out, "fc1/weights/fc1/kernel:0"), kernel)
        np.testing.assert_array_equal(value(out, "model_inputs_0"), data(1, begin=1)[0])

    def test_steps_without_due_tensors_run_keras_own_function(self, make_hook: Any, traces: list[str]) -> None:
        fit(small(), 4)
        without = len(traces)
        fit(small(), 4, make_hook(include_collections=["weights"]))
        assert len(traces) == 2 * without

    def test_batches_that_are_executed_together_are_one_step(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, model = make_hook(save_all=True), small(steps_per_execution=2)
        fit(model, 4, hook)
        hook.close()
        assert sum("steps_per_execution" in record.getMessage() for record in caplog.records) == 1
        trial = create_trial(out)
        assert trial.tensor("loss").steps(TRAIN) == trial.tensor("fc1/weights/fc1/kernel:0").steps(TRAIN) == [0, 1]
        assert not trial.has_tensor("fc1/outputs")


class TestCollections:
    def test_collections_accept_layers_and_variables(self, make_hook: Any, out: str) -> None:
        hook, model = make_hook(include_collections=["mine", "theirs"]), small()
        hook.get_collection("mine").add_keras_layer(model.get_layer("fc1"), inputs=True, outputs=False)
        hook.get_collection("mine").add([model.get_layer("fc2").kernel])
        hook.add_to_collection("theirs", model.get_layer("relu").output)
        fit(model, 1, hook)
        hook.close()
        assert names(out, collection="mine") == {"fc1/inputs", "fc2/weights/fc2/kernel:0"}
        assert names(out, collection="theirs") == {"relu/outputs"}

    def test_a_layer_of_the_next_model_is_a_warning(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, model, other = make_hook(include_collections=["mine"], save_config={"save_interval": 1}), small(), small()
        hook.get_collection("mine").add_keras_layer(other.get_layer("fc1"))
        for _ in range(2):
            fit(model, 1, hook)
        warnings = [each for each in caplog.messages if "'mine'" in each]
        assert len(warnings) == 1
        assert "layer 'fc1' is not part of the model that is trained, which has fc1, fc2, " in warnings[0]
        fit(other, 1, hook)
        hook.close()
        assert names(out, collection="mine") == {"fc1/outputs"}

    @pytest.mark.parametrize("method", ["register_model", "wrap_optimizer"])
    def test_objects_that_are_not_of_keras_are_refused(self, make_hook: Any, method: str) -> None:
        with pytest.raises(ConfigurationError, match=f"{method} takes .* got object"):
            getattr(make_hook(), method)(object())


class TestFailures:
    def test_an_error_inside_a_hook_leaves_the_model_its_own_functions(
        self, make_hook: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("TENSORTRIAL_STRICT")
        monkeypatch.setattr("tensortrial.hooks.keras.step_tensors.tensors_in", lambda value: 1 / 0)
        hook, model = make_hook(save_all=True), small()
        history = fit(model, 3, hook)
        assert np.isfinite(history.history["loss"]).all()
        assert not hook.recorder.active
        assert type(model.train_function).__module__ != "tensortrial.hooks.keras.step_functions"
        assert fit(model, 3).history["loss"][0] < history.history["loss"][0]

    def test_errors_of_training_leave_no_open_step(self, make_hook: Any) -> None:
        class Stop(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == 1:
                    raise KeyboardInterrupt

        hook, model = make_hook(save_all=True), small()
        x, y = data(3)
        with pytest.raises(KeyboardInterrupt):
            model.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[hook, Stop()])
        fit(model, 2, hook)
        assert closed(hook).tensor("fc1/outputs").steps(TRAIN) == [0, 1, 2]

    def test_the_second_of_two_fits_at_once_is_not_saved(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, model, other = make_hook(save_all=True), small(), small()

        class Meanwhile(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                thread = threading.Thread(target=fit, args=(other, 2, hook))
                thread.start()
                thread.join()

        x, y = data(2)
        model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False, callbacks=[hook, Meanwhile()])
        hook.close()
        assert "nothing is saved of a `fit` that runs in another thread at the same time" in caplog.text
        assert create_trial(out).tensor("fc1/outputs").steps(TRAIN) == [0, 1]
        np.testing.assert_array_equal(value(out, "model_inputs_0", 1), data(1, begin=1)[0])


@pytest.mark.slow
def test_a_schedule_and_batch_normalization_train_to_the_same_bits_under_xla(make_hook: Any) -> None:
    def trained(hook: Any) -> list[Any]:
        keras.utils.set_random_seed(0)
        parts = [layers.Input((64,)), layers.Dense(16), layers.BatchNormalization(), layers.Dense(10)]
        schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
        model = compiled(keras.Sequential(parts), keras.optimizers.SGD(schedule), jit_compile=True)
        fit(model, 3, hook)
        return weights(model)

    hook = make_hook(include_collections=["gradients"], save_config=tt.SaveConfig(save_interval=1))
    for found, expected in zip(trained(hook), trained(None), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert hook.mode_steps[TRAIN] == 2


def test_dropout_draws_the_same_numbers_as_without_a_hook(make_hook: Any) -> None:
    generator = getattr(keras.backend, "experimental", None)  # Keras 3 has no other

    def trained(hook: Any) -> list[Any]:
        keras.utils.set_random_seed(0)
        parts = [layers.Input((64,)), layers.Dense(16), layers.Dropout(0.3), layers.Dense(10)]
        model = compiled(keras.Sequential(parts))
        fit(model, 4, hook)
        return weights(model)

    hook = make_hook(include_collections=["gradients"], save_config=tt.SaveConfig(save_interval=2))
    if generator is not None:
        generator.enable_tf_random_generator()
    try:
        for found, expected in zip(trained(hook), trained(None), strict=True):
            np.testing.assert_array_equal(found, expected)
    finally:
        if generator is not None:
            generator.disable_tf_random_generator()
    assert hook.mode_steps[TRAIN] == 3
