"""The collections of SessionHook, its refusals, and the data of a run."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from support.graph_training import LOSS, Net, batches, cross_entropy, dense, digits
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.config.collection import Collection as CoreCollection
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration

v1 = tf.compat.v1
KERNEL, BIAS = "logits/kernel:0", "logits/bias:0"


class TestCollections:
    def test_collections_accept_tensors_variables_and_operations(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["mine", "named"])
        net = Net()
        hook.add_to_collection("mine", net.hidden)
        hook.get_collection("mine").add([net.bias, {net.predictions.op}])
        hook.add_to_collection("sm_metrics", net.loss)
        # A constant or a read of a variable is saved if a collection has its name.
        read = net.graph.get_operation_by_name("logits/MatMul").inputs[1]
        hook.get_collection("named").add_tensor_names([read.name])
        (x, y), *_ = batches(1)
        with net.session([hook]) as session:
            session.run(net.train, net.feed(x, y))
        trial = closed(hook)
        assert trial.tensor_names(collection="mine") == [BIAS, "predictions:0", "relu:0"]
        assert trial.tensor_names(collection="sm_metrics") == [LOSS]
        assert trial.tensor(read.name).shape(0) == (16, 10)
        assert trial.tensor("predictions:0").value(0).dtype == np.int64

    def test_collections_refuse_what_is_not_a_tensor_of_a_graph(self, make_hook: Any) -> None:
        hook = make_hook()
        net = Net()
        with pytest.raises(ConfigurationError, match=r"variables and operations of TensorFlow, got 'loss:0'"):
            hook.add_to_collection("losses", "loss:0")
        with pytest.raises(ConfigurationError, match="got one without a name"):
            hook.add_to_collection("losses", tf.constant(1.0))
        with pytest.raises(InvalidCollectionConfiguration, match="has no output tensor"):
            hook.add_to_collection("losses", net.init)
        hook.add_collection(CoreCollection("plain"))
        with pytest.raises(ConfigurationError, match=r"'plain' must be a tensortrial\.hooks\.tensorflow\.Collection"):
            hook.add_to_collection("plain", net.loss)

    def test_a_missing_name_of_a_collection_is_a_warning(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make_hook(include_collections=["mine"])
        hook.get_collection("mine").add_tensor_names(["relu", "relu:0", "nowhere", "text:0"])
        net = Net()
        with net.graph.as_default():
            tf.constant("a text", name="text")
        (x, y), *_ = batches(1)
        with net.session([hook]) as session:
            for _ in range(2):
                session.run(net.train, net.feed(x, y))
        hook.close()
        warnings = [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]
        assert warnings == [
            "collection 'mine' includes 'nowhere', but the graph has no such tensor",
            "collection 'mine' includes 'relu', but the graph has no such tensor; did you mean 'relu:0'?",
            "collection 'mine' includes 'text:0', but it cannot be saved: it holds no numbers, or is inside a loop or "
            "a branch",
        ]
        assert create_trial(out).tensor_names(collection="mine") == ["relu:0"]


class TestMistakes:
    def test_an_optimizer_that_is_not_wrapped_is_a_warning(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make_hook(include_collections=["gradients"])
        net = Net()
        (x, y), *_ = batches(1)
        with caplog.at_level(logging.WARNING, "tensortrial.hooks"), net.session([hook]) as session:
            warnings = [record.getMessage() for record in caplog.records]
            session.run(net.train, net.feed(x, y))
        assert len(warnings) == 1
        assert "optimizer = hook.wrap_optimizer(optimizer)" in warnings[0]
        assert [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"] == warnings

    def test_other_optimizers_and_sessions_are_refused(self, make_hook: Any) -> None:
        hook = make_hook()
        with pytest.raises(ConfigurationError, match=r"tf\.compat\.v1\.train\.Optimizer, got SGD; .* KerasHook"):
            hook.wrap_optimizer(tf.keras.optimizers.SGD())
        with pytest.raises(ConfigurationError, match=r"got object.*hooks=\[hook\]"):
            hook.wrap_session(object())
        net = Net()
        with net.session([]) as session, pytest.raises(ConfigurationError, match=r"got MonitoredSession"):
            hook.wrap_session(session)
        assert hook.recorder.active

    def test_a_model_of_keras_is_refused(self, make_hook: Any) -> None:
        hook = make_hook()
        model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(10)])
        model.compile("sgd", "mse")
        with pytest.raises(ConfigurationError, match="KerasHook"):
            model.fit(np.zeros((4, 64)), np.zeros((4, 10)), verbose=0, callbacks=[hook])

    def test_a_tensor_without_a_value_is_not_saved_by_a_call(
        self, make_hook: Any, out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.delenv("TENSORTRIAL_STRICT")
        hook = make_hook()
        hook.save_tensor("symbolic", Net().loss)
        hook.save_tensor("eager", tf.constant([1, 2]))
        hook.close()
        assert "add_to_collection" in caplog.text
        assert create_trial(out).tensor_names() == ["eager"]


class TestData:
    def test_a_run_takes_data_of_an_iterator_once(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights"], include_regex="correct")
        x, y = digits()
        with tf.Graph().as_default():
            data = tf.data.Dataset.from_tensor_slices((x, y)).batch(100)
            images, labels = v1.data.make_one_shot_iterator(data).get_next()
            logits = dense(images, 10, "logits")
            loss = cross_entropy(labels, logits)
            tf.equal(tf.argmax(logits, 1), labels, name="correct")
            train = v1.train.GradientDescentOptimizer(0.5).minimize(loss, v1.train.get_or_create_global_step())
            with v1.train.MonitoredTrainingSession(hooks=[hook], log_step_count_steps=None) as session:
                while not session.should_stop():
                    session.run(train)
        trial = closed(hook)
        assert trial.steps() == list(range(18))
        # Computed from the batch of the run, without a batch of its own.
        kernel, bias = trial.tensor(KERNEL), np.zeros(10)
        found = trial.tensor("correct:0").value(0)
        expected = (x[:100] @ kernel.value(0) + bias).argmax(1) == y[:100]
        assert np.array_equal(found, expected)
        assert trial.tensor("correct:0").shape(17) == (97,)
        assert trial.tensor("correct:0").value(17).mean() > 0.5 > trial.tensor("correct:0").value(0).mean()
