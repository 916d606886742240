"""The steps that a hook saves: save configurations, modes, counters, and where a step begins and ends."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.training import array, batches, evaluate, same, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.mode import modes  # noqa: E402

LOSS = "CrossEntropyLoss_output_0"
WEIGHT = "Net_fc1.weight"


def trained(hook: Any, steps: int, mode: Any = None) -> Any:
    """Register a model and its loss, and train for some steps."""
    net, loss = seeded(), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    if mode is not None:
        hook.set_mode(mode)
    train(net, steps, loss)
    return net


def steps(out: str, name: str = LOSS, mode: Any = modes.GLOBAL) -> list[int]:
    trial = create_trial(out)
    return trial.tensor(name).steps(mode) if trial.has_tensor(name) else []


class TestSaveConfig:
    def test_a_save_config_of_a_collection_overrides_the_hooks(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["weights", "biases", "custom"])
        hook.get_collection("weights").save_config = tt.SaveConfig(save_interval=3)
        hook.get_collection("biases").save_config = {modes.EVAL: tt.SaveConfigMode(save_interval=2)}
        hook.add_collection(tt.Collection("custom", "^fc1_output", save_config={"save_steps": [2], "end_step": 0}))
        net = trained(hook, 4, modes.TRAIN)
        hook.set_mode(modes.EVAL)
        evaluate(net, 3)
        hook.close()
        assert steps(out, WEIGHT, modes.TRAIN) == [0, 3]
        # Modes that a collection's dictionary leaves out are the hook's.
        assert steps(out, "Net_fc1.bias", modes.TRAIN) == [0, 1, 2, 3]
        assert steps(out, "Net_fc1.bias", modes.EVAL) == [0, 2]
        assert steps(out, "fc1_output_0", modes.TRAIN) == [2]
        assert steps(out, LOSS) == [0, 1, 2, 3]

    def test_a_save_config_may_change_while_training(self, make_hook: Any, out: str) -> None:
        hook = make_hook()
        net, loss = seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        train(net, 2, loss)
        hook.get_collection("losses").save_config.end_step = 3
        train(net, 3, loss)
        hook.get_collection("losses").save_config = tt.SaveConfig(save_steps=[6], end_step=0)
        train(net, 3, loss)
        hook.close()
        assert steps(out) == [0, 1, 2, 6]


class TestModes:
    def test_a_mode_is_a_member_a_name_or_a_number(self, make_hook: Any) -> None:
        hook = make_hook()
        for mode in (modes.EVAL, "eval", 2):
            hook.set_mode(mode)
            assert hook.mode is modes.EVAL


class TestSteps:
    def test_a_step_is_closed_by_the_next_by_set_mode_and_by_close(self, make_hook: Any, out: str) -> None:
        hook = make_hook()
        net, loss = seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        train(net, 2, loss)
        trial = create_trial(out)
        assert trial.tensor(LOSS).steps() == [0]
        hook.set_mode(modes.TRAIN)
        assert trial.tensor(LOSS).steps() == [0, 1]
        train(net, 1, loss)
        assert trial.tensor(LOSS).steps() == [0, 1]
        hook.close()
        assert trial.tensor(LOSS).steps() == [0, 1, 2]
        assert trial.loaded_all_steps

    def test_a_held_step_has_several_forwards(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["gradients"])
        net, loss = seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        twin = seeded()
        for start in (0, 2):
            net.zero_grad()
            twin.zero_grad()
            with hook.step():
                for x, y in batches(4)[start : start + 2]:
                    with hook.step():  # a step within a step is a part of it
                        loss(net(x), y).backward()
                    nn.functional.cross_entropy(twin(x), y).backward()
            hook.save_scalar("after", start)
        trial = closed(hook)
        assert trial.steps() == [0, 1, 2]
        assert trial.tensor("after").steps() == [1, 2]
        assert same(trial.tensor("gradient/Net_fc1.weight").value(1), array(twin.fc1.weight.grad))
        assert steps(out, "CrossEntropyLoss_output_1") == [0, 1]

    def test_a_held_step_continues_in_another_mode(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["biases"])
        net = seeded()
        hook.register_module(net)
        with hook.step():
            hook.set_mode(modes.EVAL)
            evaluate(net, 2)
        hook.close()
        assert steps(out, "Net_fc1.bias", modes.EVAL) == [0]

    def test_a_held_step_ends_with_an_exception(self, make_hook: Any) -> None:
        hook = make_hook()
        step = hook.step()
        step.__enter__()
        hook.save_scalar("x", 1)
        assert not step.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
        hook.save_scalar("y", 1)
        assert closed(hook).tensor("y").steps() == [1]

    @pytest.mark.parametrize("by_call", [False, True])
    def test_the_next_step_begins_after_one_whose_beginning_ctrl_c_interrupted(
        self, make_hook: Any, by_call: bool
    ) -> None:
        class Interrupted(torch.Tensor):
            """A tensor that the user interrupts while it is copied."""

            def dequantize(self) -> Any:
                raise KeyboardInterrupt

        hook, net = make_hook(include_collections=["buffers"]), seeded()
        net.register_buffer("slow", torch.ones(2).as_subclass(Interrupted))
        hook.register_module(net)
        with pytest.raises(KeyboardInterrupt):
            hook.begin_step(0) if by_call else hook.step(0).__enter__()
        net.slow = torch.zeros(2)
        for step in (1, 2):
            if by_call:
                hook.begin_step(step)
            else:
                with hook.step(step):
                    pass
        assert hook.mode_steps == {modes.GLOBAL: 2}
        assert closed(hook).tensor("Net_slow").steps() == [1, 2]


class TestSavedByACall:
    def test_a_value_saved_by_a_call_belongs_to_the_next_step_if_none_is_open(self, make_hook: Any) -> None:
        hook = make_hook()
        net = trained(hook, 2, modes.TRAIN)
        hook.set_mode(modes.EVAL)
        hook.save_scalar("begins", 1)
        evaluate(net, 2)
        hook.save_scalar("accuracy", 0.9)
        hook.set_mode(modes.TRAIN)
        hook.save_scalar("rate", 0.1)
        hook.save_scalar("momentum", 0.1)
        trial = closed(hook)
        assert trial.tensor("begins").steps(modes.EVAL) == [0]
        assert trial.tensor("accuracy").steps(modes.EVAL) == [1]
        # No step begins any more; what was saved is a step of its own.
        assert trial.tensor("rate").steps(modes.TRAIN) == trial.tensor("momentum").steps(modes.TRAIN) == [2]

    def test_save_tensor_takes_tensors_arrays_and_nested_lists(self, make_hook: Any) -> None:
        hook = make_hook()
        hook.save_tensor("tensors", [torch.ones(2), torch.zeros(2, requires_grad=True)])
        hook.save_tensor("numbers", ((1, 2), (3, 4)))
        hook.save_tensor("text", "abc")
        trial = closed(hook)
        assert trial.tensor("tensors").value(0).tolist() == [[1, 1], [0, 0]]
        assert trial.tensor("numbers").value(0).tolist() == [[1, 2], [3, 4]]
        assert trial.tensor("text").value(0) == "abc"


class TestStepsByHand:
    def test_begun_steps_hold_the_tensors_of_their_forwards(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights", "gradients"])
        net, loss = seeded(), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        hook.register_module(net)
        hook.register_loss(loss)
        gradients, weights = {}, {}
        for step in (1, 2):
            optimizer.zero_grad()
            hook.begin_step(step, mode=modes.TRAIN)
            weights[step] = array(net.fc1.weight).copy()
            for x, y in batches(2):
                loss(net(x), y).backward()
            gradients[step] = array(net.fc1.weight.grad).copy()
            optimizer.step()
            hook.end_step()
            hook.log({"lr": 0.1 * step}, step=step, mode=modes.TRAIN)
            evaluate(net, 1)  # in mode GLOBAL, whose steps are counted as before
        hook.set_mode(modes.TRAIN)
        evaluate(net, 1)  # outside of the steps of TRAIN
        trial = closed(hook)
        assert trial.steps(modes.TRAIN) == [1, 2]
        assert trial.steps(modes.GLOBAL) == [1, 2, 3, 4]
        for step in (1, 2):
            assert same(trial.tensor(WEIGHT).value(step, modes.TRAIN), weights[step])
            assert same(trial.tensor(f"gradient/{WEIGHT}").value(step, modes.TRAIN), gradients[step])
            assert trial.tensor("lr").value(step, modes.TRAIN) == 0.1 * step
            assert trial.tensor("CrossEntropyLoss_output_1").value(step, modes.TRAIN) is not None

    def test_the_save_config_counts_the_numbers_that_the_caller_gives(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["weights"], save_config=tt.SaveConfig(save_interval=100))
        net = seeded()
        hook.register_module(net)
        for step in (50, 99, 100, 101, 300):
            with hook.step(step):
                evaluate(net, 1)
        hook.close()
        assert steps(out, WEIGHT) == [100, 300]
