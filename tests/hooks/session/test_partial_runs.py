"""What SessionHook saves of runs that compute a part of the graph, and what it leaves unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from support.graph_training import LOSS, Net, batches, cross_entropy, dense
from support.made_hooks import closed
from tensortrial import create_trial

v1 = tf.compat.v1
KERNEL, BIAS = "logits/kernel:0", "logits/bias:0"


class TestPartialRuns:
    def test_a_partial_run_saves_what_it_can_compute(self, make_hook: Any, out: str) -> None:
        wanted = ["weights", "gradients", "tensorflow_summaries"]
        hook = make_hook(include_collections=wanted, include_regex="control_dependency", save_all=True)
        net = Net(hook.wrap_optimizer)
        with net.graph.as_default():
            step = v1.train.get_global_step()
            merged = v1.summary.merge_all()
            # No numbers: nothing to save, and nothing to say either.
            v1.get_variable("words", initializer=["a", "text"])
        (x, y), *_ = batches(1)
        runs = [
            (step, {}),
            ("predictions:0", {"x:0": x}),
            ({"deep": [net.loss, (step,)]}, {net.x: x, net.y: y}),
            (merged, net.feed(x, y)),
            ([net.train, []], net.feed(x, y)),
            (net.loss, {net.logits: np.zeros((32, 10), np.float32), net.y: y}),
        ]
        with net.session([hook]) as session:
            fetched = [session.run(fetches, feeds) for fetches, feeds in runs]
        hook.close()
        assert fetched[0] == 0
        trial = create_trial(out)
        assert trial.tensor(KERNEL).steps() == list(range(6))
        assert trial.tensor(LOSS).steps() == [2, 3, 4, 5]
        assert trial.tensor("relu:0").steps() == [1, 2, 3, 4]
        assert trial.tensor("predictions:0").steps() == [1]
        assert trial.tensor("y:0").steps() == [2, 3, 4, 5]
        # A tensor that is fed is what was fed.
        assert trial.tensor("logits/BiasAdd:0").value(5).sum() == 0
        assert trial.tensor(LOSS).value(5) == pytest.approx(np.log(10))
        for name in trial.tensor_names(collection="gradients"):
            assert trial.tensor(name).steps() == [4]
        # Of all that there is, only what a run computes anyway.
        assert "Adam" not in " ".join(trial.tensor_names())
        assert not [name for name in trial.tensor_names() if "ReadVariableOp" in name or "Const" in name]

    def test_saving_changes_no_state(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_regex=".", save_all=True)
        with tf.Graph().as_default() as graph:
            count = v1.get_variable("count", initializer=0.0)
            data = v1.data.make_one_shot_iterator(tf.data.Dataset.range(100)).get_next()
            counted = tf.identity(v1.assign_add(count, 1.0), name="counted")
            noise = v1.random.normal([3], seed=1, name="noise")
            twice = tf.multiply(noise, 2.0, name="twice")
            checked = v1.debugging.check_numerics(tf.divide(1.0, count), "bad", name="checked")
            answer = tf.constant(42.0) + 0.0
            hook.add_to_collection("losses", [counted, twice, checked, data, noise])
            operations = len(graph.get_operations())
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                fetched = [session.run(answer), session.run(data), session.run(counted), session.run(answer)]
                fetched += [session.run(noise), session.run(data), session.run(counted)]
                more = len(graph.get_operations())
            with v1.Session() as alone:
                alone.run(v1.global_variables_initializer())
                expected = alone.run(noise)
        hook.close()
        assert [float(each) for each in fetched[:4]] == [42, 0, 1, 42]
        assert np.array_equal(fetched[4], expected)
        assert [float(each) for each in fetched[5:]] == [1, 2]
        trial = create_trial(out)
        assert trial.tensor("counted:0").steps() == [2, 6]
        # What a run draws may be doubled, but nothing is drawn for that.
        assert trial.tensor("twice:0").steps() == trial.tensor(noise.name).steps() == [4]
        np.testing.assert_allclose(trial.tensor("twice:0").value(4), 2 * expected)
        assert not trial.has_tensor("checked:0")
        assert [float(trial.tensor("count:0").value(step)) for step in range(7)] == [0, 0, 0, 1, 1, 1, 1]
        # Those that a MonitoredSession itself adds; after that it allows none.
        assert more > operations

    def test_saving_adds_nothing_to_the_graph(self, make_hook: Any) -> None:
        hook = make_hook(save_all=True, include_regex=".", include_collections=["weights", "gradients"])
        net = Net(hook.wrap_optimizer)
        (x, y), *_ = batches(1)
        operations = len(net.graph.get_operations())
        with hook.wrap_session(v1.Session(graph=net.graph)) as session:
            session.run(net.init)
            session.run(net.train, net.feed(x, y))
        assert len(net.graph.get_operations()) == operations

    def test_tensors_that_race_with_an_update_are_read_before_the_run(self, make_hook: Any) -> None:
        hook = make_hook()
        with tf.Graph().as_default():
            weight = v1.get_variable("weight", initializer=1.0)
            factor = v1.placeholder(tf.float32, [], name="factor")
            squared = tf.square(weight * factor, name="squared")
            hook.add_to_collection("metrics", squared)
            double = v1.assign(weight, weight * 2)
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                for _ in range(4):
                    session.run(double, {factor: 3.0})
                session.run(double)
        found = closed(hook).tensor("squared:0")
        assert [float(found.value(step)) for step in found.steps()] == [9, 36, 144, 576]

    @pytest.mark.parametrize("behavior", ["v1", "v2"])
    def test_branches_that_are_not_taken_are_skipped(self, make_hook: Any, behavior: str) -> None:
        hook = make_hook(save_all=True, include_regex=".")
        was_v2 = v1.control_flow_v2_enabled()
        (v1.disable_control_flow_v2 if behavior == "v1" else v1.enable_control_flow_v2)()
        try:
            with tf.Graph().as_default():
                x = v1.placeholder(tf.float32, [], name="x")
                weight = v1.get_variable("weight", initializer=1.0)

                def loop(start: Any) -> Any:
                    return v1.while_loop(
                        lambda i: i < 10, lambda i: v1.cond(i > 5, lambda: i + weight, lambda: i * 2), [start]
                    )

                def deep() -> Any:
                    return v1.cond(x > 2, lambda: loop(tf.add(x, weight, name="up")), lambda: x)

                chosen = v1.cond(x > 0, deep, lambda: tf.subtract(x, 1, name="down"))
                result = tf.multiply(loop(chosen), 1.0, name="result")
                train = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.0)).minimize(result)
                with v1.train.MonitoredSession(hooks=[hook]) as session:
                    found = [session.run([result, train], {x: value})[0] for value in (4.0, 1.0)]
                with v1.Session() as alone:
                    alone.run(v1.global_variables_initializer())
                    expected = [alone.run(result, {x: value}) for value in (4.0, 1.0)]
        finally:
            (v1.enable_control_flow_v2 if was_v2 else v1.disable_control_flow_v2)()
        trial = closed(hook)
        assert found == expected
        assert [trial.tensor("result:0").value(step) for step in (0, 1)] == expected
        assert trial.tensor("x:0").value(0) == 4
        assert not {"up:0", "down:0", "body:0"} & set(trial.tensor_names())

    def test_runs_with_composite_tensors_are_saved(self, make_hook: Any) -> None:
        hook = make_hook(include_regex="^(dense|rows)")
        with tf.Graph().as_default():
            sparse = v1.sparse_placeholder(tf.float32, [2, 2])
            whole = tf.sparse.to_dense(sparse, name="dense")
            ragged = tf.RaggedTensor.from_row_lengths(tf.identity([1.0, 2.0, 3.0], name="rows"), [1, 2])
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                value = v1.SparseTensorValue([[0, 1]], [5.0], [2, 2])
                session.run({"sparse": sparse, "ragged": ragged, "whole": whole}, {sparse: value})
                session.run(sparse, {sparse: value})
                session.run(ragged)
        trial = closed(hook)
        (name,) = [name for name in trial.tensor_names() if name.startswith("dense")]
        assert trial.tensor(name).steps() == [0, 1]
        assert trial.tensor(name).value(1).tolist() == [[0, 5], [0, 0]]
        assert trial.tensor("rows:0").steps() == [0, 1, 2]

    def test_tensors_added_to_the_graph_later_are_saved(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights"], include_regex="^later")
        with tf.Graph().as_default(), hook.wrap_session(v1.Session()) as session:
            v1.get_variable("first", initializer=[1.0, 2.0])
            session.run(v1.global_variables_initializer())
            second = v1.get_variable("second", initializer=[3.0, 4.0])
            session.run(second.initializer)
            session.run(tf.multiply(second, 2, name="later"))
        trial = closed(hook)
        assert trial.tensor("first:0").steps() == [1, 2]
        assert trial.tensor("second:0").steps() == trial.tensor("later:0").steps() == [2]
        assert trial.tensor("later:0").value(2).tolist() == [6, 8]

    @pytest.mark.parametrize("monitored", [False, True])
    def test_a_tensor_that_a_run_cannot_compute_does_not_end_the_run(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture, monitored: bool
    ) -> None:
        hook = make_hook(include_collections=["weights"])
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, [None, 64])
            labels = v1.placeholder_with_default(np.zeros(1, np.int64), [None])
            logits = dense(x, 10, "logits")
            loss = cross_entropy(labels, logits)
            images, digits = batches(1)[0]
            with v1.train.MonitoredSession(hooks=[hook] if monitored else []) as monitored_session:
                session = monitored_session if monitored else hook.wrap_session(monitored_session._tf_sess())
                for _ in range(2):
                    assert session.run(logits, {x: images}).shape == (32, 10)  # one label for 32 images
                fetched = session.run(loss, {x: images, labels: digits})
        (warning,) = [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]
        assert warning.startswith("loss/value:0 is not saved at a run that cannot compute it: InvalidArgumentError")
        trial = closed(hook)
        assert trial.tensor(KERNEL).steps() == [0, 1, 2]
        assert {step: trial.tensor(LOSS).value(step) for step in trial.tensor(LOSS).steps()} == {2: fetched}

    def test_the_hook_stays_on_after_a_run_with_wrong_feeds(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make_hook(include_collections=["weights"])
        net = Net()
        ((images, digits),) = batches(1)
        with hook.wrap_session(v1.Session(graph=net.graph)) as session:
            session.run(net.init)
            with pytest.raises(ValueError, match="Cannot feed value of shape"):
                session.run(net.loss, {net.x: images[:, :3], net.y: digits})
            with pytest.raises(TypeError, match="Cannot interpret feed_dict key"):
                session.run(net.loss, {net.x: images, "nothing:0": digits})
            session.run(net.loss, {net.x: images, net.y: digits})
        assert not [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]
        assert closed(hook).tensor(KERNEL).steps() == [1]
