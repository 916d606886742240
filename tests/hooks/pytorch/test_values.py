"""Unusual values: each is saved or left out, without an effect on other values."""

from __future__ import annotations

import re
import warnings
from collections import UserDict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.training import array, batches, same, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402

X = batches(1)[0][0]


class Returning(nn.Module):
    """A layer, next to a module that returns a value of the test."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.layer, self.odd = nn.Linear(64, 10), Constant(value)

    def forward(self, x: Any) -> Any:
        self.odd(x)
        return self.layer(x)


class Constant(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = [value]

    def forward(self, x: Any) -> Any:
        return self.value[0]


def run_with(make_hook: Any, out: str, value: Any, **options: Any) -> Any:
    """Train two steps with a module that returns this value, and check that all other tensors are saved."""
    hook, net = make_hook(save_all=True, **options), seeded(lambda: Returning(value))
    hook.register_module(net)
    train(net, 2)
    assert hook.recorder.active
    trial = closed(hook)
    for name in ("layer_output_0", "Returning_layer.weight", "gradient/Returning_layer.weight"):
        assert trial.tensor(name).steps() == [0, 1]
    assert trial.loaded_all_steps
    return trial


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged, without the sentence that the losses of these trainings are not saved."""
    texts = [each.getMessage() for each in caplog.records if each.name.startswith("tensortrial")]
    return [text for text in texts if not text.startswith("no loss is saved")]


STATISTICS = tt.ReductionConfig(
    ["min", "max", "mean", "median", "std", "variance", "sum", "prod"],
    abs_reductions=["mean", "max"],
    norms=["l1", "l2"],
    save_raw_tensor=True,
)


@pytest.mark.parametrize(
    "value", [torch.tensor(3 + 4j), torch.tensor([3 + 4j]), torch.full((2000,), 3 + 4j)], ids=["scalar", "one", "many"]
)
def test_complex_numbers_have_the_statistics_that_are_defined(make_hook: Any, out: str, value: Any) -> None:
    odd = run_with(make_hook, out, value, reduction_config=STATISTICS).tensor("odd_output_0")
    assert same(odd.value(1), array(value))
    assert odd.reduction_value(1, "mean", abs=True) == 5
    assert odd.reduction_value(1, "std") == 0


@pytest.mark.usefixtures("lenient")
def test_a_fake_tensor_is_left_out(make_hook: Any, out: str, caplog: pytest.LogCaptureFixture) -> None:
    with FakeTensorMode():
        fake = torch.empty(3)
    trial = run_with(make_hook, out, fake)
    assert not trial.has_tensor("odd_output_0")
    assert len(logged(caplog)) == 1
    assert "odd_output_0" in logged(caplog)[0]


class Untouchable(torch.Tensor):  # type: ignore[misc, name-defined]
    @classmethod
    def __torch_function__(cls, *_: Any) -> Any:
        raise RuntimeError("this tensor cannot be read")


class Shy(torch.Tensor):  # type: ignore[misc, name-defined]
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == torch.Tensor.is_cpu.__get__:  # type: ignore[attr-defined]
            raise RuntimeError("this tensor does not say where it is")
        return super().__torch_function__(func, types, args, kwargs or {})


class Unreadable(UserDict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("the values have been freed")


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize(
    "value", [*(torch.ones(1).as_subclass(each) for each in (Untouchable, Shy)), (torch.ones(1), Unreadable())]
)
def test_a_value_whose_class_raises_an_error_is_left_out(
    make_hook: Any, out: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    trial = run_with(make_hook, out, value)
    assert trial.has_tensor("odd_output_0") == isinstance(value, tuple)
    assert len(logged(caplog)) == 1
    assert "cannot be read: " in logged(caplog)[0]
    hook = make_hook(f"{out}-2")
    hook.save_tensor("untouchable", value)
    hook.save_tensor("other", [1.0])
    assert closed(hook).tensor_names() == ["other"]


@pytest.mark.usefixtures("lenient")
@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
@pytest.mark.parametrize("size", [2, 100_000])
def test_a_masked_tensor_is_left_out_whatever_its_size(
    make_hook: Any, out: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    masked = torch.masked.masked_tensor(torch.ones(size), torch.arange(size) > 0)
    assert not run_with(make_hook, out, masked).has_tensor("odd_output_0")
    text = "tensor 'odd_output_0' is not saved: a MaskedTensor cannot be read: its clone is no plain tensor"
    assert logged(caplog) == [text]


class Slots:
    __slots__ = ("first", "second")

    def __init__(self, first: Any, second: Any) -> None:
        self.first = first


class Plain:
    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (deque([torch.ones(1), torch.zeros(1)]), ["0", "1"]),
        ((torch.ones(1), [SimpleNamespace(first=torch.zeros(1))]), ["0", "first"]),
        ([Slots(torch.ones(1), torch.zeros(1)), torch.ones(1)], ["0"]),
        ({"x": Plain(torch.ones(1), torch.zeros(1)), "y": torch.ones(1)}, ["y"]),
        ((torch.ones(1), {torch.zeros(1)}), ["0"]),
    ],
    ids=lambda value: "",
)
def test_the_tensors_of_a_container_are_saved_or_a_warning_names_its_class(
    make_hook: Any, out: str, caplog: pytest.LogCaptureFixture, value: Any, labels: list[str]
) -> None:
    trial = run_with(make_hook, out, value)
    assert trial.tensor_names(regex="^odd_output_") == [f"odd_output_{label}" for label in labels]
    hides = len(labels) == 1
    assert len(logged(caplog)) == hides
    assert not hides or re.match(
        r"the tensors in a (Slots|Plain|set), an output of odd, are not saved", caplog.messages[0]
    )


def test_a_list_that_contains_itself_is_entered_once(make_hook: Any, out: str) -> None:
    value: list[Any] = [torch.ones(2), {"again": torch.zeros(2)}]
    value.append(value)
    value[1]["whole"] = value
    trial = run_with(make_hook, out, value)
    assert trial.tensor("odd_output_0").value(1).tolist() == [1, 1]
    assert trial.tensor("odd_output_again").value(1).tolist() == [0, 0]
    assert not trial.has_tensor("odd_output_1")


def test_objects_of_a_graph_are_entered_a_few_times(make_hook: Any, out: str) -> None:
    nodes = [SimpleNamespace(x=torch.ones(1)) for _ in range(12)]
    for node in nodes:
        node.near = list(nodes)
    names = run_with(make_hook, out, nodes).tensor_names(regex="^odd_output_")
    assert len(nodes) <= len(names) < 10 * len(nodes)


class TestNested:
    def nested(self, *shapes: Any, layout: Any = torch.jagged) -> Any:
        members = [torch.arange(float(np.prod(shape))).reshape(shape) for shape in shapes]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the layout's interface may change, says torch
            return torch.nested.nested_tensor(members, layout=layout)

    @pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
    def test_nested_tensors_are_saved_as_values_and_lengths(self, make_hook: Any, out: str, layout: Any) -> None:
        value = self.nested((2, 3), (4, 3), layout=layout)
        trial = run_with(make_hook, out, value)
        assert trial.tensor("odd_output_0_lengths").value(1).tolist() == [2, 4]
        assert same(trial.tensor("odd_output_0").value(1), array(torch.cat(value.unbind())))

    @pytest.mark.usefixtures("lenient")
    def test_save_tensor_saves_a_nested_tensor_in_its_parts(self, make_hook: Any, caplog: Any) -> None:
        hook = make_hook()
        hook.save_tensor("tokens", self.nested((2, 3), (4, 3)), "mine", step=5)
        hook.save_tensors({"same": self.nested((2,), (2,)), "odd": self.nested((2, 3), (4, 5), layout=torch.strided)})
        trial = closed(hook)
        assert trial.tensor_names(collection="mine") == ["tokens", "tokens_lengths"]
        assert trial.tensor("tokens_lengths").value(5).tolist() == [2, 4]
        assert trial.tensor("tokens").value(5).tolist() == [[0, 1, 2], [3, 4, 5], *np.arange(12).reshape(4, 3).tolist()]
        assert trial.tensor_names(regex="same|odd") == ["same", "same_lengths"]
        assert len(logged(caplog)) == 1

    @pytest.mark.usefixtures("lenient")
    def test_a_name_without_a_hash_is_refused(self, make_hook: Any, caplog: Any) -> None:
        hook = make_hook()
        hook.save_tensor(["tokens"], torch.ones(2))
        hook.save_tensor(5, self.nested((2,), (3,)))
        assert hook.recorder.active
        hook.save_scalar("loss", 1.0)
        assert closed(hook).tensor_names() == ["loss"]
        assert "a tensor's name must be text and not empty, got ['tokens']" in caplog.text

    def test_nested_tensors_of_one_shape_are_concatenated(self, make_hook: Any, out: str) -> None:
        trial = run_with(make_hook, out, self.nested((2, 3), (2, 3), layout=torch.strided))
        assert trial.tensor("odd_output_0_lengths").value(1).tolist() == [2, 2]
        assert trial.tensor("odd_output_0").shape(1) == (4, 3)

    @pytest.mark.usefixtures("lenient")
    def test_nested_tensors_that_differ_in_two_axes_are_left_out(self, make_hook: Any, out: str, caplog: Any) -> None:
        trial = run_with(make_hook, out, self.nested((2, 3), (4, 5), layout=torch.strided))
        assert not trial.has_tensor("odd_output_0")
        assert len(logged(caplog)) == 1

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    def test_nested_tensors_of_an_encoders_fast_path_are_saved(self, make_hook: Any, caplog: Any) -> None:
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
        hook = make_hook(save_all=True)
        hook.register_module(net)
        mask = torch.tensor([[False, False, True], [False, False, False]])
        with torch.no_grad():
            expected = net(torch.randn(2, 3, 8), src_key_padding_mask=mask)
        trial = closed(hook)
        assert same(trial.tensor("TransformerEncoder_output_0").value(0), array(expected))
        values, lengths = (trial.tensor(f"layers.1_output_0{each}").value(0) for each in ("", "_lengths"))
        assert lengths.tolist() == [2, 3]
        assert same(values, array(torch.cat([expected[0, :2], expected[1]])))
        assert logged(caplog) == []

    @pytest.mark.parametrize("names", [[], ["layers.1.norm1_output", "layers.0.self_attn_input_key_padding_mask"]])
    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    def test_an_encoder_keeps_its_fast_path_at_steps_at_which_nothing_in_it_is_saved(
        self, make_hook: Any, out: str, names: list[str]
    ) -> None:
        torch.compiler.reset()  # code that other tests have compiled keeps callbacks where they are
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        net = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)).eval()
        net.forward = lambda x, mask: net[0](x, src_key_padding_mask=mask)
        hook = make_hook(
            include_collections=["weights"], include_regex=names, save_config=tt.SaveConfig(save_interval=2)
        )
        hook.register_module(net)
        values, mask = torch.randn(3, 5, 8), torch.arange(5).expand(3, 5) > torch.tensor([[2], [4], [1]])
        with torch.no_grad():
            found = [net(values, mask) for _ in range(4)]
            hook.close()
            expected = net(values, mask)
        for step in [1, 3] if names else range(4):
            assert torch.equal(found[step], expected)
        trial = create_trial(out)
        assert trial.tensor("Sequential_0.layers.0.norm1.weight").steps() == [0, 2]
        for name in names:
            assert trial.tensor(trial.tensor_names(regex=name)[0]).steps() == [0, 2]


class Int8(torch.Tensor):
    """A weight in 8 bits that knows few operators, as torchao's."""

    @staticmethod
    def __new__(cls, data: Any, scale: float) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=torch.float32)
        made.data8, made.scale = data, scale
        return made

    def dequantize(self) -> Any:
        return self.data8.float() * self.scale

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.ops.aten.detach.default:
            return type(args[0])(args[0].data8, args[0].scale)
        raise NotImplementedError(f"{function} is not implemented for {cls}")


class Opaque(Int8):
    dequantize = torch.Tensor.dequantize


class TestQuantized:
    def hooked(self, make_hook: Any, weight: Any) -> Any:
        hook, net = make_hook(save_all=True), seeded(lambda: Returning(torch.zeros(1)))
        net.frozen = nn.Parameter(weight, requires_grad=False)
        hook.register_module(net)
        train(net, 2)
        hook.close()
        return hook

    def test_quantized_weights_of_a_class_are_saved_dequantized(self, make_hook: Any, out: str) -> None:
        weight = Int8(torch.arange(6, dtype=torch.int8).reshape(2, 3), 0.5)
        self.hooked(make_hook, weight)
        assert same(create_trial(out).tensor("Returning_frozen").value(1), array(weight.dequantize()))

    @pytest.mark.usefixtures("lenient")
    def test_quantized_weights_that_cannot_be_read_are_left_out(self, make_hook: Any, out: str, caplog: Any) -> None:
        self.hooked(make_hook, Opaque(torch.zeros(2, 3, dtype=torch.int8), 0.5))
        trial = create_trial(out)
        assert trial.tensor("gradient/Returning_layer.weight").steps() == [0, 1]
        assert not trial.has_tensor("Returning_frozen")
        assert len(logged(caplog)) == 1

    @pytest.mark.filterwarnings("ignore")  # what torch says of quantized tensors
    def test_quantized_tensors_of_torch_are_saved_dequantized(self, make_hook: Any, out: str) -> None:
        value = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.25, 0, torch.qint8)
        assert run_with(make_hook, out, value).tensor("odd_output_0").value(1).tolist() == [0.5, 1]

    def test_weights_by_torchao_are_saved(self, make_hook: Any) -> None:
        quantization = pytest.importorskip("torchao.quantization")
        net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10))
        quantization.quantize_(net, quantization.Int8WeightOnlyConfig(), lambda module, _: module is net[0])
        hook = make_hook(save_all=True)
        hook.register_module(net)
        net(X).sum().backward()
        trial = closed(hook)
        assert same(trial.tensor("Sequential_0.weight").value(0), array(net[0].weight.dequantize()))
        assert trial.tensor("gradient/Sequential_1.weight").steps() == [0]


@pytest.mark.usefixtures("lenient")
def test_a_parameter_whose_memory_is_freed_between_its_uses_is_left_out(make_hook: Any, caplog: Any) -> None:
    net, hook = seeded(), make_hook(save_all=True)
    weight, kept = net.fc1.weight.data, net.fc1.weight.detach().clone()

    def load(*_: Any) -> None:
        weight.untyped_storage().resize_(kept.nbytes)
        weight.copy_(kept)

    net.register_forward_pre_hook(load)
    hook.register_module(net)
    for x, _ in batches(2):
        weight.untyped_storage().resize_(0)
        net(x).sum().backward()
    trial = closed(hook)
    assert trial.tensor("Net_fc2.weight").steps() == trial.tensor("gradient/Net_fc1.weight").steps() == [0, 1]
    assert not trial.has_tensor("Net_fc1.weight")
    assert len(logged(caplog)) == 1


@pytest.mark.usefixtures("lenient")
def test_the_hook_does_not_use_the_default_device(make_hook: Any, out: str) -> None:
    torch.set_default_device("meta")
    try:
        hook = make_hook(save_all=True, reduction_config=STATISTICS)
        net = nn.Linear(2, 2)
        hook.register_module(net)
        hook.register_module(host := nn.Linear(2, 2, device="cpu"))
        for _ in range(2):
            with hook.step():
                net(torch.ones(1, 2)).sum().backward()
                host(torch.ones(1, 2, device="cpu")).sum().backward()
                hook.save_scalar("x", 1)
                hook.save_tensor("list", [1, 2])
                hook.record_tensor_value("recorded", [1.0, 2.0])
        assert hook.recorder.active
        hook.close()
    finally:
        torch.set_default_device(None)
    trial = create_trial(out)
    assert trial.tensor("x").steps() == [0, 1]
    assert trial.tensor("recorded_output_0").value(1).tolist() == [1, 2]
    assert same(trial.tensor("Linear_1_weight").value(1), array(host.weight))
    assert not trial.has_tensor("Linear_weight")


@pytest.mark.usefixtures("lenient")
def test_a_value_that_is_no_tensor_is_left_out_of_a_call(make_hook: Any, caplog: Any) -> None:
    class Unreadable:
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise LookupError("not now")

    hook, net = make_hook(), seeded()
    hook.register_module(net)
    values = [None, "text", Unreadable(), object()]
    for _ in range(2):
        net(X)
        for number, value in enumerate(values):
            hook.record_tensor_value(f"recorded{number}", value)
        hook.save_tensor("saved", Unreadable())
        hook.save_tensor("nested", [torch.ones(1), Unreadable()])
        hook.save_scalar("x", 1)
    assert hook.recorder.active
    assert closed(hook).tensor_names() == ["x"]
    assert len(logged(caplog)) == len(values) + 2


@pytest.mark.usefixtures("lenient")
def test_arrays_of_jax_are_saved_or_left_out(make_hook: Any) -> None:
    jax = pytest.importorskip("jax")
    hook = make_hook()
    jax.jit(lambda x: hook.save_tensor("tracer", x))(jax.numpy.ones(2))
    hook.save_tensor("key", jax.random.key(0))
    hook.save_tensor("ones", jax.numpy.ones(2))
    assert hook.recorder.active
    trial = closed(hook)
    assert trial.tensor("ones").value(0).tolist() == [1, 1]
    assert not trial.has_tensor("key")
    assert not trial.has_tensor("tracer")


def test_a_loss_is_logged_without_a_warning(tmp_path: Any, recwarn: pytest.WarningsRecorder) -> None:
    torch.set_warn_always(True)
    try:
        hook = tt.Hook(tmp_path / "run")
        hook.log({"loss": torch.full((1,), 2.0, requires_grad=True)})
        hook.close()
    finally:
        torch.set_warn_always(False)
    assert create_trial(tmp_path / "run").tensor("loss").values() == {0: 2.0}
    assert not recwarn.list
