"""Which tensors a hook saves, and in what form."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from training import array, same, seeded, train  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration, RunExists  # noqa: E402

LOSS = "CrossEntropyLoss_output_0"


def trained(hook: Any, net: Any = None) -> Any:
    net, loss = net or seeded(), nn.CrossEntropyLoss()
    hook.register_module(net)
    hook.register_loss(loss)
    train(net, 2, loss)
    hook.close()
    return create_trial(hook.out_dir)


class TestWhich:
    def test_losses_alone_by_default(self, make_hook: Any) -> None:
        assert trained(make_hook()).tensor_names() == [LOSS]

    def test_include_regex_feeds_default(self, make_hook: Any) -> None:
        trial = trained(make_hook(include_regex=["relu_output", "^gradient/.*bias"]))
        expected = ["gradient/Net_fc1.bias", "gradient/Net_fc2.bias", "relu_output_0"]
        assert trial.tensor_names(collection="default") == expected
        assert trial.tensor_names() == [LOSS, *expected]

    def test_regexes_distinguish_case(self, make_hook: Any) -> None:
        assert trained(make_hook(include_regex="^net_")).tensor_names() == [LOSS]

    def test_include_collections_may_be_a_string(self, make_hook: Any) -> None:
        hook = make_hook(include_collections="weights, biases")
        assert hook.recorder.collections.saved_names == ["biases", "losses", "weights"]
        assert len(trained(hook).tensor_names()) == 5

    def test_custom_collections(self, make_hook: Any) -> None:
        hook, net = make_hook(include_collections=["regex", "names", "modules"]), seeded()
        hook.get_collection("regex").include(["^relu_input"])
        hook.add_collection(tt.Collection("names", tensor_names=["Net_fc1.bias"]))
        hook.get_collection("modules").add_module_tensors(net.fc2, inputs=True, outputs=False)
        hook.get_collection("not saved").include(".*")
        trial = trained(hook, net)
        assert trial.tensor_names(collection="regex") == ["relu_input_0"]
        assert trial.tensor_names(collection="names") == ["Net_fc1.bias"]
        assert trial.tensor_names(collection="modules") == ["fc2_input_0"]
        assert len(trial.tensor_names()) == 4
        assert {"regex", "names", "modules", "not saved", "weights"} <= set(trial.collections())

    def test_modules_may_be_told_before_they_are_registered_or_later(self, make_hook: Any) -> None:
        hook, net = make_hook(include_collections=["modules"]), seeded()
        hook.get_collection("modules").add_module_tensors(net)
        hook.register_module(net)
        train(net, 1)
        hook.get_collection("modules").add_module_tensors(net.relu, inputs=True)
        train(net, 1)
        hook.close()
        trial = create_trial(hook.out_dir)
        assert trial.tensor("Net_output_0").steps() == [0, 1]
        assert trial.tensor("relu_input_0").steps() == trial.tensor("relu_output_0").steps() == [1]

    def test_collections_may_grow_while_training(self, make_hook: Any) -> None:
        hook, net = make_hook(include_regex="^fc1_output"), seeded()
        hook.register_module(net)
        train(net, 1)
        hook.get_collection("default").include("^fc2_output")
        train(net, 1)
        trial = create_trial(hook.out_dir)
        hook.close()
        assert trial.tensor("fc2_output_0").steps() == [1]
        assert trial.collection("default").include_regex == ["^fc1_output", "^fc2_output"]

    @pytest.mark.parametrize("action", ["forward", "save_scalar", "step"])
    def test_an_empty_custom_collection_is_refused_when_training_begins(self, make_hook: Any, action: str) -> None:
        hook, net = make_hook(include_collections=["custom"]), seeded()
        hook.register_module(net)
        begin = {
            "forward": lambda: train(net, 1),
            "save_scalar": lambda: hook.save_scalar("x", 1),
            "step": hook.step().__enter__,
        }
        with pytest.raises(InvalidCollectionConfiguration, match=r"custom.*include") as caught:
            begin[action]()
        assert caught.value.name == "custom"
        assert not os.path.exists(hook.out_dir)

    def test_dry_run_writes_nothing(self, make_hook: Any, tmp_path: Any) -> None:
        hook, net = make_hook(dry_run=True, save_all=True), seeded()
        hook.register_module(net)
        hook.save_scalar("x", 1)
        hook.save_tensor("y", [1])
        train(net, 2)
        hook.flush()
        hook.close()
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize(
        ("variable", "value"), [("TENSORTRIAL", "0"), ("USE_SMDEBUG", "0"), ("USE_SMDEBUG", "False")]
    )
    def test_a_variable_switches_hooks_off(
        self, make_hook: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
    ) -> None:
        monkeypatch.setenv(variable, value)
        hook, net = make_hook(save_all=True), seeded()
        hook.register_module(net)
        train(net, 1)
        hook.close()
        assert os.listdir(tmp_path) == []


class TestForm:
    def test_statistics_only(self, make_hook: Any) -> None:
        config = tt.ReductionConfig(["min", "mean"], ["max"], ["l2"], ["l1"])
        trial = trained(make_hook(include_collections=["weights"], reduction_config=config))
        tensor = trial.tensor("Net_fc1.weight")
        expected = array(seeded().fc1.weight)
        found = tensor.reduction_values(0)
        assert set(found) == {("min", False), ("mean", False), ("max", True), ("l2", False), ("l1", True)}
        assert found[("max", True)] == np.abs(expected).max()
        assert found[("l2", False)] == pytest.approx(np.sqrt((expected.astype(float) ** 2).sum()), rel=1e-7)
        with pytest.raises(KeyError, match="only reductions were"):
            tensor.value(0)
        assert tensor.shape(0) == (16, 64)
        # A loss is a number by nature.
        assert trial.tensor(LOSS).value(0).shape == ()

    def test_statistics_beside_the_raw_value(self, make_hook: Any) -> None:
        config = tt.ReductionConfig("std, abs_mean", save_raw_tensor="True")
        tensor = trained(make_hook(include_collections=["weights"], reduction_config=config)).tensor("Net_fc1.weight")
        assert same(tensor.value(0), array(seeded().fc1.weight))
        assert set(tensor.reduction_values(0)) == {("std", False), ("mean", True)}

    def test_is_the_union_over_the_collections_that_are_due(self, make_hook: Any) -> None:
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

    def test_losses_and_metrics_are_raw_whatever_is_asked(self, make_hook: Any) -> None:
        hook = make_hook(reduction_config=tt.ReductionConfig(["max"]))
        hook.save_tensor("metric", [1, 2], "metrics")
        hook.save_tensor("sm", [1, 2], ["sm_metrics"])
        hook.save_tensor("other", [1, 2])
        hook.save_scalar("scalar", 3)
        hook.record_tensor_value("my_loss", torch.ones(2))
        trial = trained(hook)
        for name in ("metric", "sm"):
            assert trial.tensor(name).value(0).tolist() == [1, 2]
        assert trial.tensor("my_loss_output_0").value(0).tolist() == [1, 1]
        assert trial.tensor("scalar").value(0) == 3
        with pytest.raises(KeyError):
            trial.tensor("other").value(0)

    def test_histograms_are_of_collections_that_ask(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights", "biases"])
        hook.get_collection("weights").save_histogram = True
        trial = trained(hook)
        edges, counts = trial.tensor("Net_fc1.weight").histogram(0)
        assert len(edges) == len(counts) + 1
        assert counts.sum() == 16 * 64
        assert trial.tensor("Net_fc1.bias").histogram(0) is None

    def test_a_large_step_is_handed_over_in_parts(self, make_hook: Any) -> None:
        hook = make_hook()
        for i in range(12):
            hook.save_tensor(f"t{i}", np.full((1 << 18,), i, np.float32))
        hook.save_tensor("t0", [7])
        hook.close()
        trial = create_trial(hook.out_dir)
        assert trial.steps() == [0]
        assert len(trial.tensor_names(step=0)) == 12
        assert trial.tensor("t11").value(0)[-1] == 11
        assert trial.tensor("t0").value(0).tolist() == [7]


class TestRefused:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"out_dir": ""}, "where to save"),
            ({"include_workers": "two"}, "'one' or 'all'"),
            ({"codec": "gzip"}, "none, lz4, zstd"),
            ({"flush_seconds": -1}, "0 or more"),
            ({"include_regex": ["["]}, r"'\['"),
            ({"include_regex": [None]}, "None"),
            ({"save_all": "perhaps"}, "true or false"),
            ({"save_config": 3}, "save_config"),
        ],
    )
    def test_arguments_that_make_no_sense(self, out: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            tt.Hook(**{"out_dir": out, **options})

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

    def test_a_bad_regex_of_a_collection_names_both(self, make_hook: Any) -> None:
        with pytest.raises(InvalidCollectionConfiguration, match=r"mine.*'\(unclosed'"):
            make_hook().get_collection("mine").include("(unclosed")

    def test_what_is_not_a_module_or_a_collection(self, make_hook: Any) -> None:
        hook = make_hook()
        for method in (hook.register_module, hook.register_hook, hook.register_loss):
            with pytest.raises(ConfigurationError, match=r"torch\.nn\.Module, not str"):
                method("net")
        with pytest.raises(ConfigurationError, match="takes a Collection"):
            hook.add_collection("weights")
        with pytest.raises(ConfigurationError, match="add_module_tensors"):
            hook.get_collection("mine").add_module_tensors("net")

    def test_an_out_dir_that_holds_a_run_says_the_ways_out(self, make_hook: Any) -> None:
        trained(make_hook())
        with pytest.raises(RunExists, match=r"choose another out_dir.*resume=True"):
            make_hook()
        # Without writing there is nothing to lose.
        make_hook(dry_run=True)


class TestCurrentHook:
    def test_is_the_first_one_until_told_otherwise(self, make_hook: Any, tmp_path: Any) -> None:
        assert tt.get_hook() is None
        first = make_hook()
        second = make_hook(str(tmp_path / "second"))
        assert tt.get_hook() is first
        tt.set_hook(second)
        assert tt.get_hook("anything") is second
        tt.del_hook()
        assert tt.get_hook() is None
        assert not second.recorder.active
        assert first.recorder.active

    def test_collections_by_name(self, make_hook: Any) -> None:
        hook = make_hook()
        assert hook.get_collection("nowhere", create=False) is None
        assert set(hook.get_collections()) == {
            "all", "default", "weights", "biases", "gradients", "losses", "metrics", "sm_metrics", "buffers"
        }  # fmt: skip
        assert hook.get_collection("weights") is hook.get_collections()["weights"]
        assert hook.get_collection("all").include_regex == [".*"]
