"""The names of the tensors of a PyTorch model, and their values."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from support.made_hooks import closed  # noqa: E402
from support.training import array, batches, evaluate, same, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402

PARAMETERS = ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"]


def names(out: str, **options: Any) -> set[str]:
    return set(create_trial(out).tensor_names(**options))


def value(out: str, name: str, step: int = 0) -> np.ndarray:
    return create_trial(out).tensor(name).value(step)


class TestNames:
    def test_the_names_of_a_small_model_are_those_of_smdebug(self, make_hook: Any, out: str) -> None:
        hook, net, loss = make_hook(save_all=True), seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        train(net, 2, loss)
        hook.close()
        inner = {f"{module}_{kind}_0" for module in ("fc1", "relu", "fc2") for kind in ("input", "output")}
        assert names(out) == {
            *(f"Net_{name}" for name in PARAMETERS),
            *(f"gradient/Net_{name}" for name in PARAMETERS),
            *inner,
            "Net_input_0",
            "Net_output_0",
            "CrossEntropyLoss_input_0",
            "CrossEntropyLoss_input_1",
            "CrossEntropyLoss_output_0",
        }

    def test_the_built_in_collections_have_the_tensors_of_their_kind(self, make_hook: Any, out: str) -> None:
        hook, loss = make_hook(include_collections=["weights", "biases", "gradients"]), nn.CrossEntropyLoss()
        net = seeded()
        hook.register_module(net)
        hook.register_loss(loss)
        train(net, 1, loss)
        hook.close()
        assert names(out, collection="weights") == {"Net_fc1.weight", "Net_fc2.weight"}
        assert names(out, collection="biases") == {"Net_fc1.bias", "Net_fc2.bias"}
        assert names(out, collection="gradients") == {f"gradient/Net_{name}" for name in PARAMETERS}
        assert names(out, collection="losses") == {"CrossEntropyLoss_output_0"}

    def test_buffers_are_saved_if_configured(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(include_collections=["buffers"]), nn.Sequential(nn.Linear(64, 4), nn.BatchNorm1d(4))
        hook.register_module(net)
        evaluate(net)
        before = array(net[1].running_mean)
        net.train()
        evaluate(net)
        hook.close()
        kinds = ("running_mean", "running_var", "num_batches_tracked")
        assert names(out) == {f"Sequential_1.{name}" for name in kinds}
        assert same(value(out, "Sequential_1.running_mean", 1), before)
        assert value(out, "Sequential_1.num_batches_tracked").dtype == np.int64

    def test_a_module_that_runs_twice_has_numbered_outputs(self, make_hook: Any, out: str) -> None:
        class Twice(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc = nn.Linear(64, 64)

            def forward(self, x: Any) -> Any:
                return self.fc(self.fc(x))

        hook, net = make_hook(include_regex="^fc_"), seeded(Twice)
        hook.register_module(net)
        evaluate(net, 2)
        hook.close()
        assert names(out, step=1) == {"fc_input_0", "fc_input_1", "fc_output_0", "fc_output_1"}
        assert same(value(out, "fc_input_1", 1), value(out, "fc_output_0", 1))

    def test_structured_results_and_keyword_inputs_are_named_by_their_keys(self, make_hook: Any, out: str) -> None:
        @dataclasses.dataclass
        class Result:
            logits: Any
            hidden: Any

        class ModelOutput(collections.OrderedDict):  # type: ignore[type-arg]
            """A dictionary with attributes, as in transformers."""

        class Inner(nn.Module):
            def forward(self, x: Any, mask: Any = None) -> Any:
                return {"a": x, "b": (x + 1, x + 2)}

        class Middle(nn.Module):
            def forward(self, x: Any) -> Any:
                return Result(x, [x, x])

        class Outer(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner, self.middle = Inner(), Middle()

            def forward(self, *, pixels: Any, states: Any) -> Any:
                self.middle(pixels)
                self.inner(pixels, mask=pixels > 0)
                self.inner(pixels)
                return ModelOutput(logits=pixels, loss=pixels.sum(), nothing=None)

        hook, net = make_hook(include_regex="put_"), Outer()
        hook.register_module(net)
        net(pixels=torch.ones(2), states=(torch.zeros(1), {"h": torch.zeros(1)}))
        hook.close()
        first = {"inner_input_0", "inner_input_mask", "inner_output_a", "inner_output_b_0", "inner_output_b_1"}
        again = {"inner_input_1", "inner_output_a_1", "inner_output_b_0_1", "inner_output_b_1_1"}
        middle = {"middle_input_0", "middle_output_logits", "middle_output_hidden_0", "middle_output_hidden_1"}
        root = {"Outer_input_pixels", "Outer_input_states_0", "Outer_input_states_1_h"}
        assert names(out) == first | again | middle | root | {"Outer_output_logits", "Outer_output_loss"}
        assert value(out, "inner_input_mask").dtype == bool

    def test_members_of_tuples_are_numbered(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(include_regex="_output_"), nn.LSTM(8, 4)
        hook.register_module(net)
        net(torch.zeros(3, 2, 8))
        hook.close()
        assert names(out) == {"LSTM_output_0", "LSTM_output_1", "LSTM_output_2"}

    def test_a_number_as_key_next_to_members_by_position_has_a_name_of_its_own(self, make_hook: Any, out: str) -> None:
        class Pair(nn.Module):
            def forward(self, x: Any) -> Any:
                return ({0: x, "last": 2 * x}, 3 * x, [4 * x, {1: 5 * x}])

        hook, net = make_hook(include_regex="Pair_output"), Pair()
        hook.register_module(net)
        net(torch.ones(1))
        hook.close()
        found = {name: create_trial(out).tensor(name).value(0).item() for name in names(out)}
        assert found == {
            "Pair_output_0_0": 1.0,
            "Pair_output_0_last": 2.0,
            "Pair_output_0": 3.0,
            "Pair_output_1": 4.0,
            "Pair_output_1_1": 5.0,
        }

    def test_a_key_that_ends_like_the_number_of_another_call_has_a_name_of_its_own(
        self, make_hook: Any, out: str
    ) -> None:
        class Pair(nn.Module):
            def forward(self, x: Any) -> Any:
                return {"x": x, "x_1": 10 * x}

        hook, net = make_hook(include_regex="Pair_output"), Pair()
        hook.register_module(net)
        with hook.step():
            for number in (1.0, 2.0, 3.0):
                net(torch.tensor([number]))
        hook.close()
        found = {name: create_trial(out).tensor(name).value(0).item() for name in names(out)}
        assert found == {
            "Pair_output_x": 1.0,
            "Pair_output_x_1": 10.0,
            "Pair_output_x_1_1": 2.0,
            "Pair_output_x_1_2": 20.0,
            "Pair_output_x_2": 3.0,
            "Pair_output_x_1_3": 30.0,
        }

    def test_two_models_of_one_class_have_different_names(self, make_hook: Any, out: str) -> None:
        hook, first, second = make_hook(save_all=True), seeded(), seeded()
        hook.register_module(first)
        hook.register_module(second)
        hook.register_module(first)  # changes nothing
        with hook.step():
            train(first, 1)
            train(second, 1)
        hook.close()
        found = names(out)
        for name in (*PARAMETERS, "output_0", "input_0"):
            assert {f"Net_{name}", f"Net_1_{name}"} <= found
        assert {"fc1_output_0", "Net_1.fc1_output_0", "gradient/Net_1_fc1.weight"} <= found
        assert "fc1_output_1" not in found
        assert len(create_trial(out).steps()) == 1

    def test_a_module_that_two_models_share_has_one_name(self, make_hook: Any, out: str) -> None:
        shared = nn.Linear(64, 64)
        hook, one, two = make_hook(include_regex="_output_"), nn.Sequential(shared), nn.Sequential(shared)
        hook.register_module(one)
        hook.register_module(two)
        with hook.step():
            evaluate(one)
            evaluate(two)
        hook.close()
        assert names(out) == {"Sequential_output_0", "Sequential_1_output_0", "0_output_0", "0_output_1"}

    def test_recorded_values_are_named_as_outputs(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(include_regex="^probe"), seeded()
        hook.register_module(net)
        for x, y in batches(2):
            logits = net(x)
            hook.record_tensor_value("nll_loss", nn.functional.cross_entropy(logits, y))
            hook.record_tensor_value("probe", logits)
            hook.record_tensor_value("probe", np.arange(3))
        hook.close()
        assert names(out, step=1) == {"nll_loss_output_0", "probe_output_0", "probe_output_1"}
        assert names(out, collection="losses") == {"nll_loss_output_0"}

    def test_tied_parameters_have_their_first_name(self, make_hook: Any, out: str) -> None:
        hook, net = (
            make_hook(include_collections=["weights", "gradients"]),
            nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)),
        )
        net[1].weight = net[0].weight
        hook.register_module(net)
        train(net, 1)
        hook.close()
        assert names(out, collection="weights") == {"Sequential_0.weight"}
        assert "gradient/Sequential_1.weight" not in names(out)

    def test_parametrized_weights_are_weights(self, make_hook: Any, out: str) -> None:
        net = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(64, 10)))
        hook = make_hook(include_collections=["weights"])
        hook.register_module(net)
        train(net, 1)
        hook.close()
        assert names(out, collection="weights") == {f"Sequential_0.parametrizations.weight.original{i}" for i in (0, 1)}

    @pytest.mark.parametrize("wrap", [nn.DataParallel, torch.compile], ids=["DataParallel", "compile"])
    def test_names_have_no_prefix_of_wrappers(self, make_hook: Any, out: str, wrap: Any) -> None:
        hook, net = make_hook(save_all=True), seeded()
        wrapped = wrap(net) if wrap is nn.DataParallel else torch.compile(net, backend="eager")
        hook.register_module(wrapped)
        losses = train(wrapped, 2)
        hook.close()
        assert losses == train(seeded(), 2)
        found = names(out)
        assert {"Net_output_0", "Net_input_0", *(f"gradient/Net_{n}" for n in PARAMETERS)} <= found
        assert not [name for name in found if "module" in name or "_orig_mod" in name]

    def test_a_module_that_the_user_called_module_keeps_its_name(self, make_hook: Any, out: str) -> None:
        net = nn.Module()
        net.module = nn.Linear(64, 10)
        net.forward = lambda x: net.module(x)
        hook = make_hook(save_all=True)
        hook.register_module(net)
        evaluate(net)
        hook.close()
        assert {"Module_module.weight", "module_output_0"} <= names(out)


class TestValues:
    def test_values_are_those_of_the_same_training_by_hand(self, make_hook: Any) -> None:
        hook, net, loss = make_hook(save_all=True), seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        train(net, 3, loss)
        trial = closed(hook)
        twin = seeded()
        optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
        for step, (x, y) in enumerate(batches(3)):
            expected = {f"Net_{name}": array(p) for name, p in twin.named_parameters()}
            optimizer.zero_grad()
            before = twin.fc1(x)
            expected |= {"fc1_input_0": array(x), "fc1_output_0": array(before), "relu_input_0": array(before)}
            after = torch.relu(before)
            logits = twin.fc2(after)
            expected |= {"relu_output_0": array(after), "fc2_input_0": array(after), "Net_output_0": array(logits)}
            value = loss(logits, y)
            expected |= {"CrossEntropyLoss_input_1": array(y), "CrossEntropyLoss_output_0": array(value)}
            value.backward()
            expected |= {f"gradient/Net_{name}": array(p.grad) for name, p in twin.named_parameters()}
            optimizer.step()
            for name, array_ in expected.items():
                assert same(trial.tensor(name).value(step), array_), (step, name)

    @pytest.mark.parametrize(
        "dtype",
        ["float16", "float64", "bfloat16", "complex64", "bool", "uint8", "int64", "float8_e4m3fn", "float8_e5m2"],
    )
    def test_values_of_every_dtype_are_saved(self, make_hook: Any, out: str, dtype: str) -> None:
        tensor = (torch.arange(12).reshape(3, 4) % 3).to(getattr(torch, dtype))
        hook, net = make_hook(include_regex="_input_"), nn.Identity()
        hook.register_module(net)
        net(tensor.t())
        hook.close()
        found = value(out, "Identity_input_0")
        assert found.dtype == np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
        expected = tensor.t().to(torch.complex64 if tensor.is_complex() else torch.float64).numpy()
        assert found.shape == (4, 3)
        assert np.array_equal(found.astype(expected.dtype), expected)

    def test_values_of_lazy_conjugates_and_negations_are_saved(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(include_regex="_input_"), nn.Identity()
        hook.register_module(net)
        tensor = torch.tensor([1 + 2j, 3 - 1j])
        net((tensor.conj(), tensor.conj().imag))
        hook.close()
        assert same(value(out, "Identity_input_0"), np.array([1 - 2j, 3 + 1j], np.complex64))
        assert same(value(out, "Identity_input_1"), np.array([-2, 1], np.float32))

    def test_sparse_gradients_are_saved_dense(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(include_collections=["gradients"]), nn.Embedding(10, 4, sparse=True)
        hook.register_module(net)
        net(torch.tensor([1, 1, 7])).sum().backward()
        hook.close()
        found = value(out, "gradient/Embedding_weight")
        assert found.shape == (10, 4)
        assert found[:, 0].tolist() == [0, 2, 0, 0, 0, 0, 0, 1, 0, 0]

    def test_values_are_those_before_the_caller_changes_them(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(include_regex="_output_"), nn.Identity()
        hook.register_module(net)
        tensor = torch.zeros(4)
        net(tensor)
        tensor += 1
        hook.save_tensor("mine", tensor)
        tensor += 1
        hook.close()
        assert not value(out, "Identity_output_0").any()
        assert value(out, "mine").tolist() == [1, 1, 1, 1]

    def test_parameters_that_are_unfrozen_later_are_saved(self, make_hook: Any) -> None:
        hook, net = make_hook(include_collections=["weights", "gradients"]), seeded()
        net.fc1.weight.requires_grad_(False)
        hook.register_module(net)
        train(net, 2)
        net.fc1.weight.requires_grad_(True)
        train(net, 2)
        trial = closed(hook)
        assert trial.tensor("Net_fc1.weight").steps() == [0, 1, 2, 3]
        assert trial.tensor("gradient/Net_fc1.weight").steps() == [2, 3]

    @pytest.mark.parametrize("moment", ["local", "optimizer"])
    def test_the_collection_of_gradients_names_no_frozen_parameter(self, make_hook: Any, moment: str) -> None:
        hook, net = make_hook(include_collections=["gradients"], gradients=moment), seeded()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        hook.register_optimizer(optimizer)
        for parameter in net.fc1.parameters():
            parameter.requires_grad_(False)
        hook.register_module(net)
        prefix = "gradient/Net_" if moment == "local" else "optimizer_gradient/Net_"

        def step() -> None:
            with hook.step():
                net(torch.ones(2, 64)).sum().backward()
                optimizer.step()

        step()
        gradients = hook.get_collection("gradients").tensor_names
        assert {each for each in gradients if each.startswith(prefix)} == {f"{prefix}fc2.weight", f"{prefix}fc2.bias"}
        net.fc1.bias.requires_grad_(True)
        step()
        trial = closed(hook)
        saved = {f"{prefix}{each}" for each in ("fc1.bias", "fc2.weight", "fc2.bias")}
        assert set(trial.tensor_names(collection="gradients")) == saved
        assert trial.tensor(f"{prefix}fc1.bias").steps() == [1]

    @pytest.mark.parametrize("moment", ["local", "optimizer"])
    def test_an_estimated_gradient_of_a_frozen_parameter_is_saved(self, make_hook: Any, moment: str) -> None:
        hook, net = make_hook(include_collections=["gradients"], gradients=moment), seeded().requires_grad_(False)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        hook.register_module(net)
        hook.register_optimizer(optimizer)
        for _ in range(3):
            with hook.step():
                net(torch.ones(2, 64))
                net.fc1.bias.grad = torch.ones_like(net.fc1.bias)
                if moment == "local":
                    hook.save_gradients()
                optimizer.step()
                optimizer.zero_grad()
        name = "gradient/Net_fc1.bias" if moment == "local" else "optimizer_gradient/Net_fc1.bias"
        trial = closed(hook)
        assert trial.tensor_names(collection="gradients") == [name]
        assert trial.tensor(name).steps() == [0, 1, 2]

    def test_replaced_parameters_and_modules_are_saved(self, make_hook: Any) -> None:
        hook, net = make_hook(include_collections=["weights", "gradients"], include_regex="^fc2_output"), seeded()
        hook.register_module(net)
        train(net, 1)
        old = net.fc1.weight
        net.fc1.weight = nn.Parameter(torch.full((16, 64), 0.01))
        net.fc2 = nn.Linear(16, 10)
        new = array(net.fc2.weight)
        train(net, 1)
        old.sum().backward()  # no longer a part of the model
        trial = closed(hook)
        assert np.all(trial.tensor("Net_fc1.weight").value(1) == np.float32(0.01))
        assert same(trial.tensor("Net_fc2.weight").value(1), new)
        assert trial.tensor("fc2_output_0").steps() == [0, 1]
        gradient = trial.tensor("gradient/Net_fc1.weight")
        assert gradient.steps() == [0, 1]
        assert not np.all(gradient.value(1) == 1)

    def test_a_module_that_is_moved_in_its_model_is_saved_by_its_new_path(self, make_hook: Any) -> None:
        hook = make_hook(include_collections=["weights"], include_regex="_output")
        net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
        other = nn.Sequential(nn.Linear(64, 16), net[2])
        hook.register_module(net)
        hook.register_module(other, name="other")
        expected: list[list[Any]] = []
        for step in range(4):
            if step == 1:
                net.insert(1, nn.Linear(16, 16))
            elif step == 3:
                del net[1]
            x = batches(1)[0][0]
            expected.append([array(x := module(x)) for module in net])
            hook.begin_step()
            net(batches(1)[0][0]).sum().backward()
            hook.end_step()
        trial = closed(hook)
        for step, outputs in enumerate(expected):
            names = trial.tensor_names(step=step, regex=r"^\d_output_\d+$")
            assert names == [f"{number}_output_0" for number in range(len(outputs))]
            assert all(same(trial.tensor(name).value(step), outputs[int(name[0])]) for name in names)

    def test_a_loss_and_a_model_that_are_moved_in_another_model_keep_their_own_names(self, make_hook: Any) -> None:
        hook, part, criterion = make_hook(include_regex="output"), nn.Linear(64, 10), nn.MSELoss()
        net = nn.ModuleDict({"body": part, "criterion": criterion})
        hook.register_module(net)
        hook.register_module(part, name="part")
        hook.register_loss(criterion)
        for step in range(3):
            if step == 1:
                net["loss"], net["tail"] = net.pop("criterion"), net.pop("body")
            hook.begin_step()
            criterion(part(batches(1)[0][0]), torch.zeros(32, 10)).backward()
            hook.end_step()
        trial = closed(hook)
        for name in [each for each in trial.tensor_names() if "output" in each and "/" not in each]:
            assert trial.tensor(name).steps() == [0, 1, 2]
        assert trial.has_tensor("MSELoss_output_0")

    def test_parameters_in_a_held_step_have_their_first_values(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(include_collections=["weights"]), seeded()
        hook.register_module(net)
        before = array(net.fc1.weight)
        with hook.step():
            train(net, 3)
        hook.close()
        assert same(value(out, "Net_fc1.weight"), before)


class TestTrainingIsNotChanged:
    @pytest.mark.parametrize("options", [{}, {"save_all": True}], ids=["attached", "save_all"])
    def test_losses_with_a_hook_are_bitwise_equal(self, make_hook: Any, options: Any) -> None:
        plain = train(seeded(), 20)
        hook, net, loss = make_hook(**options), seeded(), nn.CrossEntropyLoss()
        hook.register_module(net)
        hook.register_loss(loss)
        assert train(net, 20, loss) == plain

    def test_inference_mode_and_double_backward_work_with_a_hook(self, make_hook: Any, out: str) -> None:
        hook, net = make_hook(save_all=True), seeded()
        hook.register_module(net)
        with torch.inference_mode():
            net(batches(1)[0][0])
        (x, y) = batches(1)[0]
        with pytest.warns(UserWarning, match="create_graph"):
            nn.functional.cross_entropy(net(x), y).backward(create_graph=True)
        net.zero_grad()
        hook.close()
        assert create_trial(out).steps() == [0, 1]
