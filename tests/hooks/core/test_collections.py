"""The collections of a hook: which tensors it saves, and in what form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.training import seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration  # noqa: E402

LOSS = "CrossEntropyLoss_output_0"


def trained(hook: Any, net: Any = None) -> Any:
    net, loss = net or seeded(), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    train(net, 2, loss)
    return closed(hook)


class TestWhich:
    def test_regexes_are_case_sensitive(self, make_hook: Any) -> None:
        assert trained(make_hook(include_regex="^net_")).tensor_names() == [LOSS]

    def test_include_collections_may_be_a_string(self, make_hook: Any) -> None:
        hook = make_hook(include_collections="weights, biases")
        assert hook.recorder.collections.saved_names == ["biases", "losses", "weights"]
        assert len(trained(hook).tensor_names()) == 5

    def test_modules_may_be_added_to_a_collection_before_or_after_they_are_registered(self, make_hook: Any) -> None:
        hook, net = make_hook(include_collections=["modules"]), seeded()
        hook.get_collection("modules").add_module_tensors(net)
        hook.register_module(net)
        train(net, 1)
        hook.get_collection("modules").add_module_tensors(net.relu, inputs=True)
        train(net, 1)
        trial = closed(hook)
        assert trial.tensor("Net_output_0").steps() == [0, 1]
        assert trial.tensor("relu_input_0").steps() == trial.tensor("relu_output_0").steps() == [1]

    def test_a_collection_that_changes_while_training_is_saved_as_it_is_now(self, make_hook: Any) -> None:
        hook, net = make_hook(include_collections=["weights"]), seeded()
        weights = hook.get_collection("weights")
        hook.register_module(net)
        train(net, 1)
        weights.reduction_config = tt.ReductionConfig(norms=["l2"])
        train(net, 1)
        weights.reduction_config.save_raw_tensor = True
        train(net, 1)
        weights.save_config = tt.SaveConfig(end_step=0)
        train(net, 1)
        weight = closed(hook).tensor("Net_fc1.weight")
        assert weight.steps() == [0, 1, 2]
        assert list(weight.values()) == [0, 2]
        assert [list(weight.reduction_values(step)) for step in weight.steps()] == [
            [],
            [("l2", False)],
            [("l2", False)],
        ]

    @pytest.mark.parametrize(
        "change",
        [
            lambda weights: weights.reduction_config.reductions.append("max"),
            lambda weights: weights.reduction_config.norms.__setitem__(0, "l1"),
            lambda weights: weights.tensor_names.add("Net_output_0"),
            lambda weights: weights.tensor_names.discard("Net_fc1.weight"),
            lambda weights: weights.patterns.append(re.compile("^Net_output")),
        ],
        ids=["a statistic is appended", "a norm is replaced", "a name is added", "a name is removed", "a pattern"],
    )
    def test_a_change_in_place_takes_effect_at_the_next_step(
        self, make_hook: Any, change: Callable[[tt.Collection], object]
    ) -> None:
        hook, net = make_hook(include_collections=["weights"]), seeded()
        weights = hook.get_collection("weights")
        weights.reduction_config = tt.ReductionConfig(norms=["l2"])
        hook.register_module(net)
        train(net, 2)
        change(weights)
        train(net, 1)
        trial = closed(hook)
        saved = [{n: set(trial.tensor(n).reduction_values(s)) for n in trial.tensor_names(step=s)} for s in range(3)]
        assert saved[0] == saved[1] != saved[2]

    def test_a_collection_that_grows_while_training_matches_more(self, make_hook: Any) -> None:
        hook, net = make_hook(include_regex="^fc1_output"), seeded()
        hook.register_module(net)
        train(net, 1)
        hook.get_collection("default").include("^fc2_output")
        train(net, 1)
        trial = create_trial(hook.out_dir)
        hook.close()
        assert trial.tensor("fc2_output_0").steps() == [1]
        assert trial.collection("default").include_regex == ["^fc1_output", "^fc2_output"]

    @pytest.mark.parametrize("action", ["log", "step"])
    def test_an_empty_custom_collection_is_one_warning(
        self, make_hook: Any, action: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, net = make_hook(include_collections=["custom"]), seeded()
        hook.register_module(net)
        use = {
            "log": lambda step: hook.log({"x": 1}, step=step),
            "step": lambda step: train(net, 1),
        }
        for step in range(2):
            use[action](step)
        hook.save_tensor("filled", [1], collections_to_write="custom")
        hook.close()
        warnings = [each.message for each in caplog.records if "'custom'" in each.message]
        assert len(warnings) == 1
        assert 'hook.get_collection("custom").include(...)' in warnings[0]
        assert "Known collections: all, biases, " in warnings[0]
        assert create_trial(hook.out_dir).tensor_names(collection="custom") == ["filled"]


class TestUnmatched:
    def test_a_collection_that_the_first_step_fills_is_no_warning(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make_hook(include_collections=["mine"])
        with hook.step():
            hook.save_tensor("x", np.ones(2), collections_to_write="mine")
        assert closed(hook).collection("mine").tensor_names == {"x"}
        assert not caplog.messages

    def unmatched(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        return [message for message in caplog.messages if "matches no tensor" in message]

    def test_a_regex_without_a_tensor_in_the_first_saved_step_is_one_warning(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make_hook(include_regex=["^fc1_output", "relu_outptu"], include_collections=["mine"])
        hook.get_collection("mine").include(["fc9", "fc2"])
        trained(hook)
        default, mine = self.unmatched(caplog)
        assert "'relu_outptu' of collection 'default'" in default
        assert "near are relu_output_0" in default
        assert "'fc9' of collection 'mine'" in mine

    def test_a_step_of_validation_is_not_what_a_regex_is_judged_by(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, net, loss = make_hook(include_regex="^gradient/"), seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        hook.set_mode(tt.modes.EVAL)
        loss(net(torch.zeros(2, 64)), torch.zeros(2, dtype=torch.long))
        hook.set_mode(tt.modes.TRAIN)
        train(net, 2, loss)
        hook.close()
        assert not self.unmatched(caplog)

    def test_a_collection_that_becomes_due_later_is_judged_then(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook, net = make_hook(include_collections=["weights", "late"]), seeded()
        hook.get_collection("late").include("fc9")
        hook.get_collection("late").save_config.start_step = 1
        hook.register_module(net)
        train(net, 1)
        hook.flush()
        assert not self.unmatched(caplog)
        train(net, 2)
        hook.close()
        assert len(self.unmatched(caplog)) == 1


class TestForm:
    def test_a_tensor_is_saved_in_the_union_of_the_forms_of_its_due_collections(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights", "one", "two"], reduction_config=tt.ReductionConfig(["max"]))
        hook.add_collection(tt.Collection("one", "fc1.weight", reduction_config=tt.ReductionConfig(norms=["l1"])))
        raw = tt.ReductionConfig(["min"], save_raw_tensor=True)
        late = tt.SaveConfig(save_steps=[1], end_step=0)
        hook.add_collection(tt.Collection("two", "fc1.weight", reduction_config=raw, save_config=late))
        tensor = trained(hook).tensor("Net_fc1.weight")
        assert set(tensor.reduction_values(0)) == {("max", False), ("l1", False)}
        assert set(tensor.reduction_values(1)) == {("max", False), ("l1", False), ("min", False)}
        with pytest.raises(KeyError):
            tensor.value(0)
        assert tensor.value(1).shape == (16, 64)

    def test_a_large_step_goes_to_the_writer_in_parts(self, make_hook: Any) -> None:
        hook = make_hook()
        for i in range(12):
            hook.save_tensor(f"t{i}", np.full((1 << 18,), i, np.float32))
        hook.save_tensor("t0", [7])
        trial = closed(hook)
        assert trial.steps() == [0]
        assert len(trial.tensor_names(step=0)) == 12
        assert trial.tensor("t11").value(0)[-1] == 11
        assert trial.tensor("t0").value(0).tolist() == [7]


class TestRefused:
    @pytest.mark.parametrize(
        ("make", "near"),
        [
            (lambda: tt.ReductionConfig(["minimum"]), "min"),
            (lambda: tt.ReductionConfig(abs_reductions=["meen"]), "mean"),
            (lambda: tt.ReductionConfig(norms=["l3"]), "l[12]"),
            (lambda: tt.ReductionConfig("min,vairance"), "variance"),
        ],
    )
    def test_an_unknown_reduction_names_the_nearest(self, make: Any, near: str) -> None:
        with pytest.raises(ConfigurationError, match=near):
            make()

    def test_a_bad_regex_is_refused_with_its_collection(self, make_hook: Any) -> None:
        with pytest.raises(InvalidCollectionConfiguration, match=r"mine.*'\(unclosed'"):
            make_hook().get_collection("mine").include("(unclosed")

    def test_a_value_that_is_not_a_module_or_a_collection_is_refused(self, make_hook: Any) -> None:
        hook = make_hook()
        for method in (hook.register_module, hook.register_hook, hook.register_loss):
            with pytest.raises(ConfigurationError, match=r"torch\.nn\.Module, got a str"):
                method("net")
        with pytest.raises(ConfigurationError, match="takes a Collection"):
            hook.add_collection("weights")
        with pytest.raises(ConfigurationError, match="add_module_tensors"):
            hook.get_collection("mine").add_module_tensors("net")
