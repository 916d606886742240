"""Which runs of a session SessionHook saves as steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensortrial.hooks.tensorflow as tt
from support.graph_training import LOSS, Net, batches
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.mode import modes

v1 = tf.compat.v1
KERNEL, BIAS = "logits/kernel:0", "logits/bias:0"


class TestSteps:
    def test_each_run_of_a_plain_session_is_a_step(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights"])
        net = Net(hook.wrap_optimizer)
        (x, y), *_ = batches(1)
        with hook.wrap_session(v1.Session(graph=net.graph)) as session:
            assert hook.wrap_session(session) is session
            session.run(net.init)
            session.run(net.predictions, {net.x: x})
            net.loss.eval({net.x: x, net.y: y})
            session.run(net.train, net.feed(x, y))
        trial = closed(hook)
        # There was nothing yet before the run that initializes, and no labels at the next one.
        assert trial.tensor(KERNEL).steps() == [1, 2, 3]
        assert trial.tensor(LOSS).steps() == [2, 3]
        assert trial.tensor(LOSS).value(2) == trial.tensor(LOSS).value(3)

    def test_two_hooks_of_a_plain_session_count_the_same_steps(self, make_hook: Any, out: str) -> None:
        hooks = [make_hook(f"{out}-{number}", include_collections=["weights"]) for number in range(2)]
        net = Net()
        (x, y), *_ = batches(1)
        with v1.Session(graph=net.graph) as session:
            session.run(net.init)
            for hook in hooks:
                hook.wrap_session(session)
            kernels = []
            for _ in range(3):
                kernels.append(v1.Session.run(session, net.kernel))
                session.run(net.train, net.feed(x, y))
        for number, hook in enumerate(hooks):
            hook.close()
            kernel = create_trial(f"{out}-{number}").tensor(KERNEL)
            assert kernel.steps() == [0, 1, 2]
            np.testing.assert_array_equal([kernel.value(step) for step in range(3)], kernels)

    def test_a_run_fetches_only_what_is_due(self, make_hook: Any) -> None:
        hook = make_hook(save_config=tt.SaveConfig(save_interval=2), include_collections=["gradients", "weights"])
        hook.get_collection("gradients").save_config = tt.SaveConfig(save_interval=3)
        net = Net(hook.wrap_optimizer)
        requested = []
        before_run = hook.before_run
        hook.before_run = lambda context: requested.append(before_run(context)) or requested[-1]
        with net.session([hook]) as session:
            for x, y in batches(4):
                session.run(net.train, net.feed(x, y))
        gradients = set(hook.get_collection("gradients").tensor_names)
        found = [None if each is None else set(each.fetches) for each in requested]
        assert found == [{LOSS, *gradients}, None, {LOSS}, gradients]

    def test_a_run_that_fails_is_no_step(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights"])
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
        weight = closed(hook).tensor("weight:0")
        assert {step: float(weight.value(step)) for step in weight.steps()} == {0: 0, 1: 1, 2: 3}

    def test_a_step_can_hold_several_runs(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights"], include_regex="^predictions:0$")
        net = Net()
        (x, y), *_ = batches(1)
        with net.session([hook]) as session:
            for _ in range(2):
                with hook.step():
                    session.run(net.predictions, {net.x: x})
                    session.run(net.train, net.feed(x, y))
        trial = closed(hook)
        assert trial.steps() == [0, 1]
        assert trial.tensor(LOSS).steps() == trial.tensor("predictions:0").steps() == [0, 1]

    def test_a_step_has_the_mode_in_which_its_run_began(self, make_hook: Any) -> None:
        hook = make_hook()
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
        trial = closed(hook)
        assert trial.tensor(LOSS).steps(modes.TRAIN) == [0, 1, 2]
        assert trial.tensor(LOSS).steps(modes.EVAL) == [0, 1, 2, 3, 4, 5]
        assert len({float(trial.tensor(LOSS).value(step, modes.TRAIN)) for step in range(3)}) == 3

    def test_steps_continue_in_the_next_session_with_another_graph(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights", "gradients"])
        for _ in range(2):
            net = Net(hook.wrap_optimizer)
            with net.session([hook]) as session:
                for x, y in batches(2):
                    session.run(net.train, net.feed(x, y))
        trial = closed(hook)
        for name in (KERNEL, LOSS, *trial.tensor_names(collection="gradients")):
            assert trial.tensor(name).steps() == [0, 1, 2, 3]
        # Both began alike.
        assert np.array_equal(trial.tensor(KERNEL).value(0), trial.tensor(KERNEL).value(2))

    def test_steps_continue_when_a_session_is_lost(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["weights"])
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
                if not lost and hook.recorder.clock.step is None and next(runs) == 2:
                    lost.append("running")
                    raise tf.errors.UnavailableError(None, None, "of the test")

        runs = iter(range(10))
        with net.graph.as_default(), net.session([hook, Loses()]) as session:
            for x, y in batches(4):
                session.run(net.train, net.feed(x, y))
        hook.close()
        assert lost == ["running", "reading"]
        # The third run was tried three times, and counts once; the new session began with new variables.
        kernel = create_trial(out).tensor(KERNEL)
        assert kernel.steps() == [0, 1, 2, 3]
        assert np.array_equal(kernel.value(0), kernel.value(2))
