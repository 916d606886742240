"""The names and values of a Gluon model's tensors, and what only MXNet has."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import tensortrial.hooks.mxnet as tt
from support.gluon_training import BATCH, Net, batches, evaluate, seeded, softmax_loss, train
from support.made_hooks import closed
from tensortrial import create_trial
from tensortrial.errors import ConfigurationError

PARAMETERS = {"net_fc1_weight", "net_fc1_bias", "net_fc2_weight", "net_fc2_bias"}
LOSS = "loss_output_0"


def names(out: str, **options: Any) -> set[str]:
    return set(create_trial(out).tensor_names(**options))


def value(out: str, name: str, step: int = 0) -> np.ndarray[Any, Any]:
    return create_trial(out).tensor(name).value(step)


def same(found: Any, expected: Any) -> bool:
    """Return whether two arrays are equal bit for bit."""
    expected = expected.asnumpy() if isinstance(expected, mx.nd.NDArray) else np.asarray(expected)
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


def backward(net: Any, x: Any, y: Any) -> None:
    with autograd.record():
        result = softmax_loss()(net(x), y)
    result.backward()


def test_tensors_that_a_user_adds_to_the_losses_are_saved_at_every_step(make_hook: Any) -> None:
    hook, net, loss = make_hook(save_config=None), seeded(), softmax_loss()
    hook.get_collection("losses").include("fc1_relu_output_")
    hook.register_block(net)
    hook.register_block(loss)
    train(net, 13, loss)
    trial = closed(hook)
    assert trial.tensor(LOSS).steps() == trial.tensor("net_fc1_relu_output_0").steps() == list(range(13))
    assert trial.tensor("gradient/net_fc1_weight").steps() == [*range(11)]


def test_at_steps_of_losses_only_no_other_block_is_captured(make_hook: Any) -> None:
    hook, net, loss = make_hook(save_config=None), seeded(), softmax_loss()
    hook.register_block(net)
    hook.register_block(loss)
    train(net, 13, loss)
    trial = closed(hook)
    assert trial.tensor(LOSS).steps() == list(range(13))
    assert trial.tensor_names(step=12) == [LOSS]
    assert trial.tensor("net_fc2_output_0").steps() == trial.tensor("net_fc2_weight").steps() == [*range(11)]


class TestNames:
    def test_all_tensors_of_a_small_model_are_named(self, make_hook: Any, out: str) -> None:
        hook, net, loss = make_hook(save_all=True), seeded(), softmax_loss()
        hook.register_block(net)
        hook.register_block(loss)
        hook.register_hook(loss)  # twice changes nothing
        train(net, 2, loss)
        hook.close()
        blocks = ("net_fc1", "net_fc1_relu", "net_fc2", "net")
        assert names(out) == {
            *PARAMETERS,
            *(f"gradient/{name}" for name in PARAMETERS),
            *(f"{block}_{kind}_0" for block in blocks for kind in ("input", "output")),
            "loss_input_0",
            "loss_input_1",
            "loss_output_0",
        }
        assert names(out, collection="weights") == {"net_fc1_weight", "net_fc2_weight"}
        assert names(out, collection="biases") == {"net_fc1_bias", "net_fc2_bias"}
        assert names(out, collection="gradients") == {f"gradient/{name}" for name in PARAMETERS}
        assert names(out, collection="losses") == {"loss_output_0"}

    def test_names_are_those_of_gluon(self, make_hook: Any, out: str) -> None:
        # Gluon counts the blocks of the process.
        hook, net, loss = make_hook(save_all=True), nn.HybridSequential(), gluon.loss.SoftmaxCrossEntropyLoss()
        with net.name_scope():
            net.add(nn.Dense(10))
        net.initialize()
        hook.register_block(net)
        hook.register_block(loss)
        train(net, 1, loss)
        hook.close()
        assert {f"{net.name}_dense0_weight", f"{net.name}_dense0_output_0", f"{loss.name}_output_0"} < names(out)
        assert loss.name.startswith("softmaxcrossentropyloss")

    def test_a_block_that_runs_twice_and_takes_lists_has_numbered_names(self, make_hook: Any, out: str) -> None:
        class Twice(gluon.Block):
            def __init__(self) -> None:
                super().__init__(prefix="twice_")
                self.fc = nn.Dense(64, in_units=64, prefix="fc_")

            def forward(self, pair: Any) -> Any:
                return [self.fc(self.fc(pair[0])), [pair[1]]]

        hook, net = make_hook(include_regex="^(fc|twice)_(in|out)put"), seeded(Twice)
        hook.register_block(net)
        x, y = batches(1)[0]
        for _ in range(2):
            net([x, y])
        hook.close()
        inner = {f"{block}_{kind}_{i}" for block in ("fc", "twice") for kind in ("input", "output") for i in (0, 1)}
        assert names(out, step=1) == inner
        assert same(value(out, "fc_input_1", 1), value(out, "fc_output_0", 1))
        assert same(value(out, "twice_output_1", 1), y)

    def test_another_model_with_the_same_names_has_numbered_names(self, make_hook: Any, out: str) -> None:
        hook, first, second = make_hook(save_all=True), seeded(), seeded()
        hook.register_block(first)
        hook.register_block(second)
        with hook.step():
            for net in (first, second):
                backward(net, *batches(1)[0])
        hook.close()
        both = {"net_fc1_weight", "net_fc1_weight_1", "gradient/net_fc1_weight_1", "net_output_0", "net_1_output_0"}
        assert both < names(out)
        assert create_trial(out).steps() == [0]

    def test_begun_steps_hold_the_arrays_of_their_forwards(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(include_collections=["weights"]), seeded()
        hook.register_block(net)
        for step in (3, 7):
            hook.begin_step(step)
            for x, y in batches(2):
                backward(net, x, y)
            hook.end_step()
            backward(net, *batches(1)[0])
        hook.close()
        assert create_trial(out).tensor("net_fc1_weight").steps() == create_trial(out).steps() == [3, 7]

    def test_collections_accept_blocks(self, make_hook: Any) -> None:
        hook, net = make_hook(include_collections=["mine"]), seeded()
        hook.get_collection("mine").add_block_tensors(net.fc1, inputs=True, outputs=False)
        hook.register_block(net)
        train(net, 1)
        hook.get_collection("mine").add_block_tensors(net)
        train(net, 1)
        trial = closed(hook)
        assert trial.tensor("net_fc1_input_0").steps() == [0, 1]
        assert trial.tensor("net_output_0").steps() == [1]
        assert trial.tensor_names() == ["net_fc1_input_0", "net_output_0"]

    def test_objects_that_are_not_blocks_are_refused(self, make_hook: Any) -> None:
        hook = make_hook()
        for method in (hook.register_block, hook.register_hook, hook.get_collection("mine").add_block_tensors):
            with pytest.raises(ConfigurationError, match=r"takes a gluon\.Block, got str"):
                method("net")


class TestValues:
    def test_saved_values_are_what_the_blocks_computed(self, make_hook: Any, out: str) -> None:
        hook, net, loss = make_hook(save_all=True), seeded(), softmax_loss()
        hook.register_block(net)
        hook.register_block(loss)
        x, y = batches(1)[0]
        with autograd.record():
            hidden = net.fc1(x)
            logits = net(x)
            result = loss(logits, y)
        result.backward()
        hook.close()
        for name, expected in {
            "net_input_0": x,
            "net_fc1_output_0": hidden,
            "net_fc2_input_0": hidden,
            "net_output_0": logits,
            "loss_input_1": y,
            "loss_output_0": result,
            "net_fc1_weight": net.fc1.weight.data(),
            "gradient/net_fc1_weight": net.fc1.weight.grad(),
        }.items():
            assert same(value(out, name), expected), name

    @pytest.mark.parametrize("hybridized", [False, True])
    def test_parameters_that_are_initialized_in_the_first_forward_are_saved(
        self, make_hook: Any, out: str, hybridized: bool
    ) -> None:
        hook, net = make_hook(save_all=True), seeded(lambda: Net(inputs=0))
        net.hybridize(hybridized)
        hook.register_block(net)
        assert net.fc1.weight.shape == (16, 0)
        train(net, 2)
        trial = closed(hook)
        inner = () if hybridized else ("net_fc1_output_0",)
        for name in (*PARAMETERS, *inner, "net_output_0"):
            assert trial.tensor(name).steps() == [0, 1], name
        assert trial.tensor("net_fc1_weight").shape(0) == (16, 64)
        assert not np.array_equal(value(out, "net_fc1_weight", 0), value(out, "net_fc1_weight", 1))

    def test_values_are_saved_in_all_modes_of_autograd(self, make_hook: Any) -> None:
        def make() -> Any:
            net = nn.Sequential(prefix="net_")
            with net.name_scope():
                net.add(nn.BatchNorm(prefix="norm_"), nn.Dropout(0.5, prefix="drop_"))
            return net

        hook, net = make_hook(save_all=True), seeded(make)
        hook.register_block(net)
        x, _ = batches(1)[0]
        with autograd.record():
            net(x)
        with autograd.predict_mode():
            net(x)
        with autograd.train_mode():
            net(x)
        trial = closed(hook)
        # The mode of the hook is set by set_mode alone.
        assert trial.modes() == [tt.modes.GLOBAL]
        dropped = trial.tensor("net_drop_output_0").values()
        assert [bool(np.mean(dropped[step] == 0) > np.mean(dropped[1] == 0) + 0.1) for step in range(3)] == [1, 0, 1]
        assert trial.tensor("net_norm_running_mean").shape(0) == (64,)
        assert "gradient/net_norm_running_mean" not in trial.tensor_names()

    def test_values_of_the_numpy_interface_are_saved(self, make_hook: Any, out: str) -> None:
        mx.npx.set_np()
        try:
            hook, net = make_hook(save_all=True), seeded()
            hook.register_block(net)
            with autograd.record():
                result = (net(mx.np.ones((2, 64))) ** 2).sum()
            result.backward()
            expected = net.fc1.weight.grad().asnumpy()
        finally:
            mx.npx.reset_np()
        hook.close()
        assert same(value(out, "gradient/net_fc1_weight"), expected)
        assert {*PARAMETERS, "net_fc1_output_0", "net_output_0"} < names(out)

    def test_values_may_be_bfloat16(self, make_hook: Any, out: str) -> None:
        hook = make_hook()
        numbers = mx.nd.amp_cast(mx.nd.array([1.5, -2]), dtype=np.dtype([("bfloat16", np.uint16)]))
        hook.save_tensor("numbers", numbers)
        hook.close()
        found = value(out, "numbers")
        assert found.dtype == ml_dtypes.bfloat16
        assert found.tolist() == [1.5, -2]

    def test_values_are_saved_by_a_call(self, make_hook: Any, out: str) -> None:
        hook = make_hook()
        hook.save_tensor("array", mx.nd.ones((2, 2)))
        hook.save_tensor("arrays", [mx.nd.ones(2), mx.nd.zeros(2)])
        hook.save_tensor("numpy", mx.np.arange(3))
        hook.close()
        assert value(out, "array").tolist() == [[1, 1], [1, 1]]
        assert value(out, "arrays").tolist() == [[1, 1], [0, 0]]
        assert value(out, "numpy").tolist() == [0, 1, 2]


class TestGradients:
    @pytest.mark.parametrize("zeroed", ["after the step", "before the forward"])
    def test_gradients_that_add_up_are_saved_at_their_step(self, make_hook: Any, out: str, zeroed: str) -> None:
        hook, net = make_hook(include_collections=["gradients"]), seeded()
        net.collect_params().setattr("grad_req", "add")
        hook.register_block(net)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        expected = []
        for x, y in batches(3):
            if zeroed == "before the forward":
                net.collect_params().zero_grad()
            backward(net, x, y)
            expected.append(net.fc1.weight.grad().asnumpy())
            trainer.step(BATCH)
            if zeroed == "after the step":
                net.collect_params().zero_grad()
        hook.close()
        for step in range(3):
            assert same(value(out, "gradient/net_fc1_weight", step), expected[step])

    def test_gradients_that_accumulate_are_saved_in_one_step(self, make_hook: Any, out: str) -> None:
        hook, net, twin = make_hook(include_collections=["gradients"]), seeded(), seeded()
        for each in (net, twin):
            each.collect_params().setattr("grad_req", "add")
        hook.register_block(net)
        with hook.step():
            for x, y in batches(3):
                backward(net, x, y)
                backward(twin, x, y)
        hook.close()
        assert create_trial(out).steps() == [0]
        assert same(value(out, "gradient/net_fc1_weight"), twin.fc1.weight.grad())

    def test_gradients_without_a_trainer_are_saved(self, make_hook: Any, out: str) -> None:
        hook, net, loss = make_hook(include_collections=["gradients"]), seeded(), softmax_loss()
        hook.register_block(net)
        expected = []
        for x, y in batches(2):
            with autograd.record():
                results = [loss(net(x), y)]
            autograd.backward(results)
            expected.append(net.fc2.bias.grad().asnumpy())
            for parameter in net.collect_params().values():
                parameter.set_data(parameter.data() - 0.01 * parameter.grad())
        evaluate(net)
        assert closed(hook).tensor("gradient/net_fc2_bias").steps() == [0, 1]
        assert all(same(value(out, "gradient/net_fc2_bias", step), expected[step]) for step in range(2))

    def test_gradients_of_frozen_and_unused_parameters_are_not_saved(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(save_all=True), seeded()
        net.fc1.collect_params().setattr("grad_req", "null")
        hook.register_block(net)
        x, _ = batches(1)[0]
        with autograd.record():
            result = net.fc2(net.fc1(x)).sum() + net(x).sum() * 0
        result.backward()
        other = mx.nd.ones(2)
        other.attach_grad()
        with autograd.record():
            result = (other * 2).sum()
        result.backward()
        hook.close()
        assert {name for name in names(out) if name.startswith("gradient/")} == {
            "gradient/net_fc2_weight",
            "gradient/net_fc2_bias",
        }

    def test_gradients_are_named_once_a_parameter_has_them(self, make_hook: Any) -> None:
        hook, net = make_hook(include_collections=["gradients"]), seeded()
        frozen = net.collect_params("net_fc1.*")
        frozen.setattr("grad_req", "null")
        hook.register_block(net)
        gradients = hook.get_collection("gradients").tensor_names
        backward(net, *batches(1)[0])
        assert gradients == {"gradient/net_fc2_weight", "gradient/net_fc2_bias"}
        frozen.setattr("grad_req", "write")
        backward(net, *batches(1)[0])
        assert gradients == {f"gradient/{name}" for name in PARAMETERS}
        assert closed(hook).tensor("gradient/net_fc1_weight").steps() == [1]

    def test_sparse_gradients_are_saved(self, make_hook: Any, out: str) -> None:
        hook = make_hook(include_collections=["weights", "gradients"])
        net = seeded(lambda: nn.Embedding(10, 4, sparse_grad=True, prefix="words_"))
        hook.register_block(net)
        with autograd.record():
            result = net(mx.nd.array([1, 7])).sum()
        result.backward()
        hook.close()
        gradient = value(out, "gradient/words_weight")
        assert gradient.shape == (10, 4)
        assert np.flatnonzero(gradient.sum(axis=1)).tolist() == [1, 7]


class TestHybridized:
    def test_a_hybridized_model_is_a_warning(self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture) -> None:
        hook, net, loss = make_hook(save_all=True), seeded(), softmax_loss()
        net.hybridize(static_alloc=True)
        loss.hybridize()
        hook.register_block(net)
        hook.register_block(loss)
        assert len(caplog.records) == 1
        assert "inputs and outputs of the blocks inside net are not saved, because it is hybridized" in caplog.text
        train(net, 3, loss)
        hook.close()
        own = {"net_input_0", "net_output_0", "loss_input_0", "loss_input_1", "loss_output_0"}
        assert names(out) == own | PARAMETERS | {f"gradient/{name}" for name in PARAMETERS}
        assert create_trial(out).steps() == [0, 1, 2]
        assert len(caplog.records) == 1

    def test_a_model_may_be_hybridized_later_or_in_part(
        self, make_hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Outer(gluon.Block):
            def __init__(self) -> None:
                super().__init__(prefix="")
                self.body, self.head = Net("body_", inputs=0), nn.Dense(10, prefix="head_")

            def forward(self, x: Any) -> Any:
                return self.head(self.body(x))

        hook, net = make_hook(save_all=True), seeded(Outer)
        hook.register_block(net)
        train(net, 1)
        assert not caplog.records
        with pytest.warns(UserWarning, match="hybridized while still having forward hook"):
            net.hybridize()
        train(net, 1)
        hook.close()
        assert [record.args[0] for record in caplog.records] == ["body"]
        found = create_trial(out)
        assert found.tensor("body_fc1_output_0").steps() == [0]
        for name in ("body_output_0", "head_output_0", "outer_output_0", "gradient/body_fc1_weight"):
            assert found.tensor(name).steps() == [0, 1], name


class TestTheModel:
    def test_exporting_the_graph_of_a_model_is_no_step(self, make_hook: Any, tmp_path: Path) -> None:
        hook, net = make_hook(save_all=True), seeded()
        hook.register_block(net)
        with pytest.warns(UserWarning, match="hybridized while still having forward hook"):
            net.hybridize()
        evaluate(net, 1)
        net(mx.sym.var("data"))
        net.export(str(tmp_path / "exported"))
        evaluate(net, 1)
        assert closed(hook).steps() == [0, 1]

    @pytest.mark.parametrize(
        "copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"]
    )
    def test_a_model_is_saved_and_its_copy_is_not(self, make_hook: Any, out: str, copied: Any) -> None:
        hook, net = make_hook(include_collections=["weights"]), seeded()
        hook.register_block(net)
        evaluate(net, 1)
        twin = copied(net)
        evaluate(twin, 1)
        train(net, 1)
        hook.close()
        x, _ = batches(1)[0]
        assert not np.array_equal(twin(x).asnumpy(), net(x).asnumpy())
        assert create_trial(out).steps() == [0, 1]

    def test_a_model_that_never_runs_is_a_warning_at_the_end(
        self, make_hook: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        hook = make_hook()
        hook.register_block(seeded())
        hook.save_scalar("x", 1)
        hook.close()
        assert "nothing of net was saved" in caplog.text

    def test_a_model_is_not_read_when_nothing_is_due(self, make_hook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        hook, net = make_hook(save_config=tt.SaveConfig(save_steps=[1], end_step=0), save_all=True), seeded()
        hook.register_block(net)
        reads = []
        read = mx.nd.NDArray.asnumpy
        monkeypatch.setattr(mx.nd.NDArray, "asnumpy", lambda array: reads.append(array) or read(array))
        for x, y in batches(3):
            backward(net, x, y)
        assert len(reads) == 4 + 4 + 8
        hook.close()


def test_an_error_of_the_job_is_raised(
    make_hook: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    hook, net = make_hook(save_all=True), seeded()
    hook.register_block(net)
    # It fails in the background, and MXNet raises where the values are first read.
    wrong = mx.nd.random.normal(0, -1, (2, 64))
    with pytest.raises(mx.MXNetError, match="scale parameter"):
        net(wrong)
    assert not caplog.records
    train(net, 2)
    assert closed(hook).tensor("net_output_0").steps() == [1, 2]


def test_the_numbers_before_one_of_a_failed_computation_are_saved(make_hook: Any) -> None:
    hook = make_hook()
    with pytest.raises(mx.MXNetError, match="scale parameter"):
        hook.log({"before": 1.0, "wrong": mx.nd.random.normal(0, -1, (1,)).as_np_ndarray(), "after": 2.0})
    trial = closed(hook)
    assert trial.tensor_names() == ["before"]
    assert trial.tensor("before").values() == {0: 1.0}
