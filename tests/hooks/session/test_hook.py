"""What SessionHook saves of sessions, plain and monitored, and what it leaves as it was."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensortrial.hooks.session.hook as tt
from support.graph_training import LOSS, Net, batches, cross_entropy, dense, digits
from tensortrial import create_trial
from tensortrial.config.collection import Collection as CoreCollection
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration
from tensortrial.mode import modes

v1 = tf.compat.v1
KERNEL, BIAS = "logits/kernel:0", "logits/bias:0"


@pytest.fixture
def make(out: str) -> Iterator[Callable[..., Any]]:
    """Make a hook that saves each step into `out`, unless told otherwise; it is closed after the test."""
    made: list[Any] = []

    def make(out_dir: str = out, **options: Any) -> Any:
        options.setdefault("save_config", tt.SaveConfig(save_interval=1))
        made.append(tt.SessionHook(out_dir, **options))
        return made[-1]

    yield make
    for hook in made:
        hook.close()


def softmax(logits: Any) -> Any:
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def by_hand(weights: list[Any], x: Any, y: Any) -> tuple[Any, list[Any]]:
    """The loss of a Net, and the gradients of hidden kernel and bias, logits kernel and bias, by numpy."""
    hidden_kernel, hidden_bias, kernel, bias = [each.astype(np.float64) for each in weights]
    before = x @ hidden_kernel + hidden_bias
    hidden = np.maximum(before, 0)
    chances = softmax(hidden @ kernel + bias)
    rows = np.arange(len(y))
    loss = -np.log(chances[rows, y]).mean()
    error = chances.copy()
    error[rows, y] -= 1
    error /= len(y)
    back = (error @ kernel.T) * (before > 0)
    return loss, [x.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]


class TestValues:
    @pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
    def test_are_those_of_a_training_by_hand(self, make: Any, out: str, use_resource: bool) -> None:
        collections = ["weights", "biases", "gradients", "tensorflow_summaries"]
        hook = make(include_collections=collections, include_regex="^relu:0")
        net = Net(hook.wrap_optimizer, use_resource)
        with v1.Session(graph=net.graph) as session:
            session.run(net.init)
            variables = [net.hidden_kernel, net.hidden_bias, net.kernel, net.bias]
            weights = [each.copy() for each in session.run(variables)]
            hook.wrap_session(session)
            for x, y in batches(4):
                session.run(net.train, net.feed(x, y))
        hook.close()

        trial = create_trial(out)
        assert trial.steps() == [0, 1, 2, 3]
        names = ["hidden/kernel:0", "hidden/bias:0", KERNEL, BIAS]
        assert trial.tensor_names(collection="weights") == sorted(names[::2])
        assert trial.tensor_names(collection="biases") == sorted(names[1::2])
        assert trial.tensor_names(collection="tensorflow_summaries") == [LOSS]
        assert trial.tensor_names(collection="losses") == [LOSS]
        assert len(trial.tensor_names(collection="gradients")) == 4
        by_shape = {trial.tensor(name).shape(0): name for name in trial.tensor_names(collection="gradients")}
        for step, (x, y) in enumerate(batches(4)):
            loss, gradients = by_hand(weights, x, y)
            assert trial.tensor(LOSS).value(step) == pytest.approx(loss, rel=1e-5)
            hidden = np.maximum(x @ weights[0] + weights[1], 0)
            np.testing.assert_allclose(trial.tensor("relu:0").value(step), hidden, rtol=1e-4, atol=1e-5)
            for name, weight, gradient in zip(names, weights, gradients, strict=True):
                # As it was before the run: an update of the run itself would be seen here.
                np.testing.assert_allclose(trial.tensor(name).value(step), weight, rtol=1e-4, atol=1e-6)
                found = trial.tensor(by_shape[weight.shape]).value(step)
                np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=1e-6)
            weights = [weight - 0.1 * gradient for weight, gradient in zip(weights, gradients, strict=True)]

    @pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
    def test_of_a_large_variable_are_those_before_the_run(self, make: Any, out: str, use_resource: bool) -> None:
        hook = make(include_collections=["weights"])
        with tf.Graph().as_default():
            large = v1.get_variable(
                "large", [1000, 1000], initializer=v1.zeros_initializer(), use_resource=use_resource
            )
            add = v1.assign_add(large, tf.ones_like(large))
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                for _ in range(3):
                    session.run(add)
        hook.close()
        found = create_trial(out).tensor("large:0")
        assert [np.unique(found.value(step)).tolist() for step in range(3)] == [[0], [1], [2]]

    def test_belong_to_the_hook(self, make: Any, out: str) -> None:
        hook = make(include_regex="relu:0")
        net = Net()
        (x, y), *_ = batches(1)
        with net.session([hook]) as session:
            _, hidden = session.run([net.train, net.hidden], net.feed(x, y))
        expected = hidden.copy()
        hidden[:] = 7
        hook.close()
        assert np.array_equal(create_trial(out).tensor("relu:0").value(0), expected)

    def test_of_gradients_as_computed_and_as_applied(self, make: Any, out: str) -> None:
        hook = make(include_collections=["gradients"])
        with tf.Graph().as_default():
            weight = v1.get_variable("weight", initializer=[3.0, 4.0])
            optimizer = hook.wrap_optimizer(v1.train.AdamOptimizer())
            assert hook.wrap_optimizer(optimizer) is optimizer
            pairs = optimizer.compute_gradients(tf.reduce_sum(weight * weight, name="square"))
            clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 1.0)
            # An iterator, as zip gives one, can be gone through only once.
            train = optimizer.apply_gradients(zip(clipped, [weight], strict=True))
            computed, applied = pairs[0][0].name, clipped[0].name
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                session.run(train)
        hook.close()
        trial = create_trial(out)
        assert set(trial.tensor_names(collection="gradients")) == {computed, applied}
        np.testing.assert_allclose(trial.tensor(computed).value(0), [6, 8])
        np.testing.assert_allclose(trial.tensor(applied).value(0), [0.6, 0.8], rtol=1e-6)
        # What is minimized is a loss, whatever it is called.
        assert trial.tensor_names(collection="losses") == ["square:0"]
        assert trial.tensor("square:0").value(0) == 25

    def test_of_sparse_gradients_are_dense(self, make: Any, out: str) -> None:
        hook = make(include_collections=["gradients"])
        with tf.Graph().as_default():
            table = v1.get_variable("table", [5, 2], initializer=v1.ones_initializer())
            rows = tf.nn.embedding_lookup(table, tf.constant([1, 3, 1]))
            loss = tf.reduce_sum(rows * tf.constant([[1.0], [2.0], [10.0]]))
            train = hook.wrap_optimizer(v1.train.GradientDescentOptimizer(0.1)).minimize(loss)
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                session.run(train)
        hook.close()
        (name,) = create_trial(out).tensor_names(collection="gradients")
        expected = [[0, 0], [11, 11], [0, 0], [2, 2], [0, 0]]
        assert create_trial(out).tensor(name).value(0).tolist() == expected


class TestSteps:
    def test_are_the_runs_of_a_plain_session(self, make: Any, out: str) -> None:
        hook = make(include_collections=["weights"])
        net = Net(hook.wrap_optimizer)
        (x, y), *_ = batches(1)
        with hook.wrap_session(v1.Session(graph=net.graph)) as session:
            assert hook.wrap_session(session) is session
            session.run(net.init)
            session.run(net.predictions, {net.x: x})
            net.loss.eval({net.x: x, net.y: y})
            session.run(net.train, net.feed(x, y))
        hook.close()
        trial = create_trial(out)
        # There was nothing yet before the run that initialises, and no labels at the next one.
        assert trial.tensor(KERNEL).steps() == [1, 2, 3]
        assert trial.tensor(LOSS).steps() == [2, 3]
        assert trial.tensor(LOSS).value(2) == trial.tensor(LOSS).value(3)

    def test_ask_for_what_is_due_and_for_nothing_else(self, make: Any) -> None:
        hook = make(save_config=tt.SaveConfig(save_interval=2), include_collections=["gradients", "weights"])
        hook.get_collection("gradients").save_config = tt.SaveConfig(save_interval=3)
        net = Net(hook.wrap_optimizer)
        asked = []
        before_run = hook.before_run
        hook.before_run = lambda context: asked.append(before_run(context)) or asked[-1]
        with net.session([hook]) as session:
            for x, y in batches(4):
                session.run(net.train, net.feed(x, y))
        gradients = set(hook.get_collection("gradients").tensor_names)
        found = [None if each is None else set(each.fetches) for each in asked]
        assert found == [{LOSS, *gradients}, None, {LOSS}, gradients]

    def test_of_a_run_that_fails_are_none(self, make: Any, out: str) -> None:
        hook = make(include_collections=["weights"])
        with tf.Graph().as_default():
            weight = v1.get_variable("weight", initializer=0.0)
            data = v1.data.make_one_shot_iterator(tf.data.Dataset.range(2)).get_next()
            train = v1.assign_add(weight, tf.cast(data, tf.float32) + 1)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                hook.wrap_session(session)
                for _ in range(2):
                    session.run(train)
                with pytest.raises(tf.errors.OutOfRangeError):
                    session.run(train)
                session.run(weight)
        hook.close()
        weight = create_trial(out).tensor("weight:0")
        assert {step: float(weight.value(step)) for step in weight.steps()} == {0: 0, 1: 1, 2: 3}

    def test_can_hold_several_runs(self, make: Any, out: str) -> None:
        hook = make(include_collections=["weights"], include_regex="^predictions:0$")
        net = Net()
        (x, y), *_ = batches(1)
        with net.session([hook]) as session:
            for _ in range(2):
                with hook.step():
                    session.run(net.predictions, {net.x: x})
                    session.run(net.train, net.feed(x, y))
        hook.close()
        trial = create_trial(out)
        assert trial.steps() == [0, 1]
        assert trial.tensor(LOSS).steps() == trial.tensor("predictions:0").steps() == [0, 1]

    def test_are_of_the_mode_in_which_the_run_began(self, make: Any, out: str) -> None:
        hook = make()
        net = Net()
        (x, y), *_ = batches(1)

        class Evaluates(v1.train.SessionRunHook):
            """As an evaluation at each checkpoint does: within the run that is going on for the hook."""

            def after_run(self, run_context: Any, run_values: Any) -> None:
                hook.set_mode(modes.EVAL)
                for _ in range(2):
                    inner.run(net.loss, net.feed(x, y))
                hook.set_mode(modes.TRAIN)

        hook.set_mode(modes.TRAIN)
        with v1.Session(graph=net.graph) as inner:
            inner.run(net.init)
            hook.wrap_session(inner)
            with net.session([Evaluates(), hook]) as session:
                for _ in range(3):
                    session.run(net.train, net.feed(x, y))
        hook.close()
        trial = create_trial(out)
        assert trial.tensor(LOSS).steps(modes.TRAIN) == [0, 1, 2]
        assert trial.tensor(LOSS).steps(modes.EVAL) == [0, 1, 2, 3, 4, 5]
        assert len({float(trial.tensor(LOSS).value(step, modes.TRAIN)) for step in range(3)}) == 3

    def test_go_on_in_the_next_session_with_another_graph(self, make: Any, out: str) -> None:
        hook = make(include_collections=["weights", "gradients"])
        for _ in range(2):
            net = Net(hook.wrap_optimizer)
            with net.session([hook]) as session:
                for x, y in batches(2):
                    session.run(net.train, net.feed(x, y))
        hook.close()
        trial = create_trial(out)
        for name in (KERNEL, LOSS, *trial.tensor_names(collection="gradients")):
            assert trial.tensor(name).steps() == [0, 1, 2, 3]
        # Both began alike.
        assert np.array_equal(trial.tensor(KERNEL).value(0), trial.tensor(KERNEL).value(2))

    def test_go_on_when_a_session_is_lost(self, make: Any, out: str) -> None:
        hook = make(include_collections=["weights"])
        net = Net(hook.wrap_optimizer)
        lost = []

        class Loses(v1.train.SessionRunHook):
            """Lets the third run fail, and the first reading of weights in the session that comes then."""

            def after_create_session(self, session: Any, coord: Any) -> None:
                run = session.run

                def may_fail(fetches: Any, *args: Any, **kwargs: Any) -> Any:
                    if len(lost) == 1 and isinstance(fetches, dict) and KERNEL in fetches:
                        lost.append("reading")
                        raise tf.errors.AbortedError(None, None, "of the test")
                    return run(fetches, *args, **kwargs)

                session.run = may_fail

            def before_run(self, run_context: Any) -> None:
                if not lost and hook.recorder.step is None and next(runs) == 2:
                    lost.append("running")
                    raise tf.errors.UnavailableError(None, None, "of the test")

        runs = iter(range(10))
        with net.graph.as_default(), net.session([hook, Loses()]) as session:
            for x, y in batches(4):
                session.run(net.train, net.feed(x, y))
        hook.close()
        assert lost == ["running", "reading"]
        # The third run was tried three times, and counts once; the new session began anew.
        kernel = create_trial(out).tensor(KERNEL)
        assert kernel.steps() == [0, 1, 2, 3]
        assert np.array_equal(kernel.value(0), kernel.value(2))


class TestPartialRuns:
    def test_save_what_can_be_had(self, make: Any, out: str) -> None:
        wanted = ["weights", "gradients", "tensorflow_summaries"]
        hook = make(include_collections=wanted, include_regex="control_dependency", save_all=True)
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
            given = [session.run(fetches, feeds) for fetches, feeds in runs]
        hook.close()
        assert given[0] == 0
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

    def test_change_no_state_for_the_sake_of_saving(self, make: Any, out: str) -> None:
        hook = make(include_regex=".", save_all=True)
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
                given = [session.run(answer), session.run(data), session.run(counted), session.run(answer)]
                given += [session.run(noise), session.run(data), session.run(counted)]
                more = len(graph.get_operations())
            with v1.Session() as alone:
                alone.run(v1.global_variables_initializer())
                expected = alone.run(noise)
        hook.close()
        assert [float(each) for each in given[:4]] == [42, 0, 1, 42]
        assert np.array_equal(given[4], expected)
        assert [float(each) for each in given[5:]] == [1, 2]
        trial = create_trial(out)
        assert trial.tensor("counted:0").steps() == [2, 6]
        # What a run draws may be doubled, but nothing is drawn for that.
        assert trial.tensor("twice:0").steps() == trial.tensor(noise.name).steps() == [4]
        np.testing.assert_allclose(trial.tensor("twice:0").value(4), 2 * expected)
        assert not trial.has_tensor("checked:0")
        assert [float(trial.tensor("count:0").value(step)) for step in range(7)] == [0, 0, 0, 1, 1, 1, 1]
        # Those that a MonitoredSession itself adds; after that it allows none.
        assert more > operations

    def test_add_nothing_to_the_graph(self, make: Any) -> None:
        hook = make(save_all=True, include_regex=".", include_collections=["weights", "gradients"])
        net = Net(hook.wrap_optimizer)
        (x, y), *_ = batches(1)
        operations = len(net.graph.get_operations())
        with hook.wrap_session(v1.Session(graph=net.graph)) as session:
            session.run(net.init)
            session.run(net.train, net.feed(x, y))
        assert len(net.graph.get_operations()) == operations

    def test_read_before_the_run_what_would_otherwise_race_with_its_update(self, make: Any, out: str) -> None:
        hook = make()
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
        hook.close()
        found = create_trial(out).tensor("squared:0")
        assert [float(found.value(step)) for step in found.steps()] == [9, 36, 144, 576]

    @pytest.mark.parametrize("behaviour", ["v1", "v2"])
    def test_pass_over_branches_that_are_not_taken(self, make: Any, out: str, behaviour: str) -> None:
        hook = make(save_all=True, include_regex=".")
        was_v2 = v1.control_flow_v2_enabled()
        (v1.disable_control_flow_v2 if behaviour == "v1" else v1.enable_control_flow_v2)()
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
        hook.close()
        trial = create_trial(out)
        assert found == expected
        assert [trial.tensor("result:0").value(step) for step in (0, 1)] == expected
        assert trial.tensor("x:0").value(0) == 4
        assert not {"up:0", "down:0", "body:0"} & set(trial.tensor_names())

    def test_with_composite_tensors(self, make: Any, out: str) -> None:
        hook = make(include_regex="^(dense|rows)")
        with tf.Graph().as_default():
            sparse = v1.sparse_placeholder(tf.float32, [2, 2])
            whole = tf.sparse.to_dense(sparse, name="dense")
            ragged = tf.RaggedTensor.from_row_lengths(tf.identity([1.0, 2.0, 3.0], name="rows"), [1, 2])
            with v1.train.MonitoredSession(hooks=[hook]) as session:
                value = v1.SparseTensorValue([[0, 1]], [5.0], [2, 2])
                session.run({"sparse": sparse, "ragged": ragged, "whole": whole}, {sparse: value})
                session.run(sparse, {sparse: value})
                session.run(ragged)
        hook.close()
        trial = create_trial(out)
        (name,) = [name for name in trial.tensor_names() if name.startswith("dense")]
        assert trial.tensor(name).steps() == [0, 1]
        assert trial.tensor(name).value(1).tolist() == [[0, 5], [0, 0]]
        assert trial.tensor("rows:0").steps() == [0, 1, 2]

    def test_of_a_graph_that_grows(self, make: Any, out: str) -> None:
        hook = make(include_collections=["weights"], include_regex="^later")
        with tf.Graph().as_default(), hook.wrap_session(v1.Session()) as session:
            v1.get_variable("first", initializer=[1.0, 2.0])
            session.run(v1.global_variables_initializer())
            second = v1.get_variable("second", initializer=[3.0, 4.0])
            session.run(second.initializer)
            session.run(tf.multiply(second, 2, name="later"))
        hook.close()
        trial = create_trial(out)
        assert trial.tensor("first:0").steps() == [1, 2]
        assert trial.tensor("second:0").steps() == trial.tensor("later:0").steps() == [2]
        assert trial.tensor("later:0").value(2).tolist() == [6, 8]


class TestCollections:
    def test_take_tensors_variables_and_operations(self, make: Any, out: str) -> None:
        hook = make(include_collections=["mine", "named"])
        net = Net()
        hook.add_to_collection("mine", net.hidden)
        hook.get_collection("mine").add([net.bias, {net.predictions.op}])
        hook.add_to_collection("sm_metrics", net.loss)
        # A constant or a read of a variable is saved if it is asked for by name.
        read = net.graph.get_operation_by_name("logits/MatMul").inputs[1]
        hook.get_collection("named").add_tensor_names([read.name])
        (x, y), *_ = batches(1)
        with net.session([hook]) as session:
            session.run(net.train, net.feed(x, y))
        hook.close()
        trial = create_trial(out)
        assert trial.tensor_names(collection="mine") == [BIAS, "predictions:0", "relu:0"]
        assert trial.tensor_names(collection="sm_metrics") == [LOSS]
        assert trial.tensor(read.name).shape(0) == (16, 10)
        assert trial.tensor("predictions:0").value(0).dtype == np.int64

    def test_refuse_what_is_no_tensor_of_a_graph(self, make: Any) -> None:
        hook = make()
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

    def test_that_name_what_is_not_there_are_told_at_the_start(
        self, make: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make(include_collections=["mine"])
        hook.get_collection("mine").add_tensor_names(["relu", "relu:0", "nowhere", "text:0"])
        net = Net()
        with net.graph.as_default():
            tf.constant("a text", name="text")
        (x, y), *_ = batches(1)
        with net.session([hook]) as session:
            for _ in range(2):
                session.run(net.train, net.feed(x, y))
        hook.close()
        told = [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]
        assert told == [
            "collection 'mine' includes 'nowhere', but the graph has no such tensor",
            "collection 'mine' includes 'relu', but the graph has no such tensor; did you mean 'relu:0'?",
            "collection 'mine' includes 'text:0', but it cannot be saved: it holds no numbers, or is inside a loop or "
            "a branch",
        ]
        assert create_trial(out).tensor_names(collection="mine") == ["relu:0"]


class TestWhatIsWrong:
    def test_an_optimizer_that_is_not_wrapped_is_told_at_the_start(
        self, make: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make(include_collections=["gradients"])
        net = Net()
        (x, y), *_ = batches(1)
        with caplog.at_level(logging.WARNING, "tensortrial.hooks"), net.session([hook]) as session:
            told = [record.getMessage() for record in caplog.records]
            session.run(net.train, net.feed(x, y))
        assert len(told) == 1
        assert "optimizer = hook.wrap_optimizer(optimizer)" in told[0]
        assert [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"] == told

    def test_other_optimizers_and_sessions_are_refused(self, make: Any) -> None:
        hook = make()
        with pytest.raises(ConfigurationError, match=r"tf\.compat\.v1\.train\.Optimizer, got SGD; .* KerasHook"):
            hook.wrap_optimizer(tf.keras.optimizers.SGD())
        with pytest.raises(ConfigurationError, match=r"got object.*hooks=\[hook\]"):
            hook.wrap_session(object())
        net = Net()
        with net.session([]) as session, pytest.raises(ConfigurationError, match=r"got MonitoredSession"):
            hook.wrap_session(session)
        assert hook.recorder.active

    def test_a_model_of_keras_is_refused(self, make: Any) -> None:
        hook = make()
        model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(10)])
        model.compile("sgd", "mse")
        with pytest.raises(ConfigurationError, match="KerasHook"):
            model.fit(np.zeros((4, 64)), np.zeros((4, 10)), verbose=0, callbacks=[hook])

    def test_a_tensor_without_a_value_is_not_saved_by_a_call(
        self, make: Any, out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.delenv("TENSORTRIAL_STRICT")
        hook = make()
        hook.save_tensor("symbolic", Net().loss)
        hook.save_tensor("eager", tf.constant([1, 2]))
        hook.close()
        assert "add_to_collection" in caplog.text
        assert create_trial(out).tensor_names() == ["eager"]


class TestData:
    def test_of_an_iterator_is_taken_once_a_run(self, make: Any, out: str) -> None:
        hook = make(include_collections=["weights"], include_regex="correct")
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
        hook.close()
        trial = create_trial(out)
        assert trial.steps() == list(range(18))
        # Computed from the batch of the run, without a batch of its own.
        kernel, bias = trial.tensor(KERNEL), np.zeros(10)
        found = trial.tensor("correct:0").value(0)
        expected = (x[:100] @ kernel.value(0) + bias).argmax(1) == y[:100]
        assert np.array_equal(found, expected)
        assert trial.tensor("correct:0").shape(17) == (97,)
        assert trial.tensor("correct:0").value(17).mean() > 0.5 > trial.tensor("correct:0").value(0).mean()
