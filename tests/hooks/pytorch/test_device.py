"""Statistics and values that are sent from a device later. Here the device is the CPU, which needs no stream."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.made_hooks import closed  # noqa: E402
from support.torch_capture import capture_as_on_a_device, limit_device_batches  # noqa: E402
from support.torch_kernels import Clones  # noqa: E402
from support.training import seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.format.record import Plan  # noqa: E402
from tensortrial.hooks.pytorch.device import Batch  # noqa: E402
from tensortrial.statistics.by_axis import statistics_by_axis  # noqa: E402
from tensortrial.statistics.digest import digest_of_array  # noqa: E402
from tensortrial.statistics.sketch import quantile, sketch_of  # noqa: E402

MEAN, BOTH = Plan("x", (), False, ("mean",)), Plan("y", (), False, ("max", "l1"))


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A Capture that treats every tensor as one on a device, and counts the copies to the host."""
    return capture_as_on_a_device(monkeypatch)


class TestBatch:
    def test_a_batch_has_the_values_of_the_moment(self) -> None:
        batch, tensor = Batch(), torch.ones(4)
        mean = batch.add(MEAN, tensor)
        tensor.fill_(5)
        both = batch.add(BOTH, tensor)
        assert not mean.statistics
        assert not both.statistics
        batch.ready()
        assert mean.statistics == {"mean": 1}
        assert both.statistics == {"max": 5, "l1": 20}

    def test_a_batch_reduces_before_it_holds_too_many_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        limit_device_batches(monkeypatch, 100)
        batch = Batch()
        with Clones() as clones:
            found = [batch.add(MEAN, torch.full((20,), float(i))) for i in range(7)]
        assert (clones.made, clones.alive) == (7, 1)
        batch.send()
        assert batch.add(MEAN, torch.ones(1)) is None
        batch.ready()
        assert [each.statistics for each in found] == [{"mean": i} for i in range(7)]

    def test_several_threads_may_wait_for_a_batch(self) -> None:
        batch = Batch()
        found = [batch.add(BOTH, torch.full((3,), float(i))) for i in range(100)]
        threads = [threading.Thread(target=batch.ready) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each.statistics for each in found] == [{"max": i, "l1": 3 * i} for i in range(100)]


def test_statistics_of_a_step_are_sent_in_one_copy(make_hook: Any, out: str, tmp_path: Any, far: list[int]) -> None:
    form = tt.ReductionConfig(reductions=["mean", "max"], norms=["l2"])
    hook = make_hook(include_collections=["weights", "gradients"], include_regex="fc1_output", reduction_config=form)
    net = seeded()
    hook.register_module(net)
    train(net, 3)
    hook.close()
    # Two weights, four gradients and an output, three numbers each.
    assert far == [21, 21, 21]

    expected = make_hook(f"{out}-raw", include_collections=["weights", "gradients"], include_regex="fc1_output")
    net = seeded()
    expected.register_module(net)
    train(net, 3)
    expected.close()
    trial, raw = create_trial(out), create_trial(f"{out}-raw")
    assert trial.tensor_names() == raw.tensor_names()
    for name in trial.tensor_names():
        for step in range(3):
            value = raw.tensor(name).value(step)
            assert trial.tensor(name).shape(step) == value.shape
            found = [trial.tensor(name).reduction_value(step, each) for each in ("mean", "max", "l2")]
            assert np.allclose(found, [value.mean(), value.max(), np.linalg.norm(value.ravel())], rtol=1e-5)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("raw", [True, False])
def test_statistics_along_an_axis_are_in_the_same_copy(make_hook: Any, far: list[int], raw: bool, axis: int) -> None:
    form = tt.ReductionConfig(reductions=["min", "median"], norms=["l2"], axis=axis, save_raw_tensor=raw)
    hook, net = make_hook(include_collections=["weights"], reduction_config=form), seeded()
    values = {f"Net_{name}": each.detach().numpy().copy() for name, each in net.named_parameters()}
    hook.register_module(net)
    train(net, 1)
    trial = closed(hook)
    weights = trial.tensor_names(collection="weights")
    lengths = [values[name].shape[axis] for name in weights]
    assert sum(far) == sum(3 + 3 * length for length in lengths)
    for name, length in zip(weights, lengths, strict=True):
        for statistic in ("min", "median", "l2"):
            expected = statistics_by_axis(values[name], [statistic], axis)[statistic]
            found = trial.tensor(name).reduction_value(0, statistic, axis=axis)
            assert found.shape == (length,)
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_quantiles_are_counted_in_a_copy_on_the_host(make_hook: Any, far: list[int]) -> None:
    form = tt.ReductionConfig(reductions=["mean"], quantiles=True)
    hook, net = make_hook(include_collections=["weights"], reduction_config=form), seeded()
    values = {f"Net_{name}": each.detach().numpy().copy() for name, each in net.named_parameters()}
    hook.register_module(net)
    train(net, 1)
    trial = closed(hook)
    for name in trial.tensor_names(collection="weights"):
        expected = sketch_of(values[name])
        assert expected is not None
        assert trial.tensor(name).quantile(0, 0.9) == quantile(expected, 0.9)
        assert trial.tensor(name).reduction_value(0, "mean") == pytest.approx(values[name].mean(), rel=1e-5)


def test_a_digest_is_computed_from_a_copy_on_the_host(make_hook: Any, far: list[int]) -> None:
    form = tt.ReductionConfig(reductions=["mean"], digest=True)
    hook, net = make_hook(include_collections=["weights"], reduction_config=form), seeded()
    values = {f"Net_{name}": digest_of_array(each.detach().numpy()) for name, each in net.named_parameters()}
    hook.register_module(net)
    train(net, 1)
    trial = closed(hook)
    weights = trial.tensor_names(collection="weights")
    assert weights
    assert {name: trial.tensor(name).reduction_value(0, "digest") for name in weights} == {
        name: values[name] for name in weights
    }
    assert trial.values(weights) == {name: {} for name in weights}


@pytest.mark.parametrize("raw", [True, False])
def test_statistics_arrive_without_a_call_of_send(make_hook: Any, out: str, far: list[int], raw: bool) -> None:
    # With raw values, so large that the writer takes a part of the step while it still runs.
    form = tt.ReductionConfig(reductions=["mean"], save_raw_tensor=raw)
    hook, net = make_hook(save_all=True, reduction_config=form), seeded(lambda: nn.Linear(64, 40_000))
    hook.register_module(net)
    train(net, 2)
    hook.recorder.close()  # as at exit
    weight, output = (create_trial(out).tensor(name) for name in ("Linear_weight", "Linear_output_0"))
    assert weight.reduction_value(0, "mean") == pytest.approx(
        seeded(lambda: nn.Linear(64, 40_000)).weight.mean().item()
    )
    for step in range(2):
        assert np.isfinite(output.reduction_value(step, "mean"))
        if raw:
            assert output.value(step).mean() == pytest.approx(output.reduction_value(step, "mean"), rel=1e-3, abs=1e-6)
