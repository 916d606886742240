"""Statistics by torch equal those by numpy, for every dtype, and never wait for the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortrial.errors import ConfigurationError
from tensortrial.statistics.by_axis import statistics_by_axis
from tensortrial.statistics.definitions import COMPLEX_STATISTICS, STATISTICS
from tensortrial.statistics.single import statistics

torch = pytest.importorskip("torch")

from support.extreme_numbers import EXTREMES, Extreme  # noqa: E402
from support.torch_capture import limit_parts  # noqa: E402
from support.torch_kernels import Kernels  # noqa: E402
from tensortrial.hooks.pytorch.statistics import (  # noqa: E402
    device_statistics,
    device_statistics_by_axis,
    middle_of_sorted,
    statistics_of_rows,
)

QUICK = settings(max_examples=40, deadline=None, derandomize=True)

FLOATS = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
]
INTEGERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def dtypes(names: list[str]) -> list[Any]:
    return [getattr(torch, name) for name in names if hasattr(torch, name)]


def check(tensors: list[Any], rtol: float = 1e-9) -> None:
    """Compare the rows with numpy's statistics of the same numbers, a sum on the scale of its magnitudes."""
    found = device_statistics(tensors, STATISTICS)
    assert found.shape == (len(tensors), len(STATISTICS))
    assert found.dtype == torch.float64
    for row, tensor in zip(found.tolist(), tensors, strict=True):
        wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
        expected = statistics(wide.numpy(), STATISTICS)
        # These two depend on the dtype, and the shape of numbers that are nearly equal on their rounding.
        unlike = {"subnormal_count", "saturated_count"}
        if not expected.get("std", 0.0) > 1e-5 * expected.get("rms", 0.0) or expected["l2"] > 1e70:
            unlike |= {"skewness", "kurtosis"}
        for name, value in zip(STATISTICS, row, strict=True):
            if name in unlike:
                continue
            close(value, expected.get(name, math.nan), scale_of(name, expected), rtol, name)


def scale_of(name: str, expected: dict[str, float]) -> float:
    if name == "skewness":
        return expected.get("kurtosis", 0.0)
    if name in ("sum", "mean"):
        return expected["l1" if name == "sum" else "abs_mean"] if name in expected else 0.0
    if name.endswith(("std", "variance")):
        floor = 1e-5 * expected["abs_mean"]
        return expected[name] + (floor if name.endswith("std") else floor**2)
    return abs(expected.get(name, 0.0))


def close(found: float, expected: float, scale: float, rtol: float, name: str) -> None:
    if math.isfinite(expected):
        assert abs(found - expected) <= rtol * scale + 1e-300, f"{name}: {found} for {expected}"
    else:
        assert repr(found) == repr(expected), f"{name}: {found} for {expected}"


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e30, -1e-30, math.inf, -math.inf, math.nan])
NUMBERS = st.one_of(SPECIAL, st.floats(-100, 100, width=32))


@pytest.mark.parametrize("dtype", dtypes(FLOATS), ids=str)
@QUICK
@given(values=st.lists(NUMBERS, max_size=40))
def test_statistics_of_floats_are_numpys(dtype: Any, values: list[float]) -> None:
    check([torch.tensor(values, dtype=torch.float64).to(dtype)])


@pytest.mark.parametrize("dtype", dtypes(INTEGERS), ids=str)
@QUICK
@given(values=st.lists(st.integers(0, 255), max_size=40))
def test_statistics_of_integers_are_numpys(dtype: Any, values: list[int]) -> None:
    check([torch.tensor(values, dtype=torch.int64).to(dtype)])


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_statistics_of_complex_numbers_are_numpys(dtype: Any) -> None:
    bad = torch.tensor([complex(math.inf, math.nan), 3 + 4j, 0])
    check(
        [
            torch.complex(normal(50), normal(50, seed=1)).to(dtype),
            bad.to(dtype),
            bad[1:].to(dtype),
            torch.tensor([complex(1, -math.inf), 1j], dtype=dtype),
        ]
    )


def test_many_tensors_keep_their_order() -> None:
    tensors = [
        normal(7),
        normal(3, 4).to(torch.bfloat16),
        normal(7, seed=2),
        torch.zeros(0),
        normal(12, seed=3),
        torch.tensor(3.5),
        torch.ones(0, 2, dtype=torch.complex64),
        torch.tensor(2),
        normal(7, seed=4),
        torch.tensor(True),
        torch.tensor(-1.5),
    ]
    check(tensors)


@pytest.mark.parametrize("of", EXTREMES.values(), ids=list(EXTREMES))
def test_numbers_at_the_ends_of_their_dtype(of: Extreme) -> None:
    tensor = torch.from_numpy(of.values)
    found = device_statistics([tensor, torch.ones_like(tensor)], (of.statistic,))
    assert float(found[0, 0]) == pytest.approx(of.expected, rel=1e-9, abs=0, nan_ok=True)
    by_axis = device_statistics_by_axis(tensor.reshape(1, -1), (of.statistic,), 0)
    assert float(by_axis[of.statistic][0]) == pytest.approx(of.expected, rel=1e-9, abs=0, nan_ok=True)


@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_statistics_of_a_large_tensor_do_not_depend_on_its_parts(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    limit_parts(monkeypatch, chunk)
    check([normal(100), normal(100, seed=1) + 1e6, normal(7), normal(13, 11).T, normal(100, seed=2) * 1e-3])
    check([torch.tensor([1.0, math.nan] * 40), torch.tensor([1.0, 0.0, -2.0, math.inf, 5.0] * 14)])


@pytest.mark.parametrize("dtype", dtypes(["float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2"]), ids=str)
def test_subnormal_and_saturated_numbers_are_those_of_the_dtype(dtype: Any) -> None:
    known = torch.finfo(dtype)
    least = known.smallest_normal
    values = torch.tensor([0.0, 1.0, known.max, -known.max, least, least / 2, -least / 4], dtype=torch.float64).to(
        dtype
    )
    assert device_statistics([values], ["saturated_count", "subnormal_count"]).tolist() == [[2, 2]]


def test_integers_saturate_at_both_ends() -> None:
    names = ["saturated_count", "subnormal_count"]
    assert device_statistics([torch.tensor([-128, 0, 127], dtype=torch.int8)], names).tolist() == [[2, 0]]
    assert device_statistics([torch.tensor([0, 0, 255], dtype=torch.uint8)], names).tolist() == [[1, 0]]
    assert device_statistics([torch.tensor([True, False])], names).tolist() == [[0, 0]]


def test_statistics_do_not_depend_on_the_memory_layout() -> None:
    base = normal(6, 7, 8)
    check(
        [
            base.permute(2, 0, 1),
            base[::2, :, 1::3],
            base[:, 3],
            base.flip(0),
            base[:, :1, :1].expand(6, 7, 8),
            base.to(memory_format=torch.contiguous_format).mT,
        ]
    )


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1.0, 1e30, 3e38])
def test_statistics_of_the_largest_and_smallest_float32_are_numpys(scale: float) -> None:
    check([torch.full((5000,), scale), normal(1000).clamp(-1, 1) * scale])


def test_the_variance_of_a_small_spread_around_a_large_mean_is_numpys() -> None:
    check([normal(200_000) + 1e6])


def test_a_product_does_not_overflow_before_its_end() -> None:
    check([torch.cat([torch.full((5000,), 0.5), torch.full((5010,), 2.0)]), 1 + normal(5001) * 1e-3, normal(9) * 3])


def test_medians_by_sorting_as_on_a_gpu_are_numpys() -> None:
    for values in (normal(3, 10), normal(2, 11), torch.tensor([[1.0, math.nan, 3.0]]), torch.tensor([[1, 2, 4, 9]])):
        by_selection = device_statistics_by_axis(values, ["median"], 0)["median"]
        by_sorting = middle_of_sorted(values, torch.float64)
        assert torch.equal(by_sorting.nan_to_num(-1e9), by_selection.nan_to_num(-1e9))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_statistics_without_float64_as_on_mps_are_close_to_numpys(scale: float) -> None:
    values = normal(2000).clamp(-5, 5) * scale
    names = ["min", "max", "median", "l1", "l2", "mean", "abs_mean", "abs_max", "zero_count"]
    found = statistics_of_rows(values.unsqueeze(0), names, torch.float32)
    expected = statistics(values.numpy(), names)
    for name in names:
        assert found[name].dtype == torch.float32
        assert found[name].item() == pytest.approx(expected[name], rel=1e-5, abs=1e-6 * scale)
    zeros = statistics_of_rows(torch.zeros(1, 4), ["l2", "std", "prod"], torch.float32)
    assert [zeros[name].item() for name in ("l2", "std", "prod")] == [0.0, 0.0, 0.0]


def test_statistics_have_several_names_and_unknown_ones_are_refused() -> None:
    assert device_statistics([torch.tensor([3.0, 4.0])], ["l2_norm", "min", "l2"]).tolist() == [[5.0, 3.0, 5.0]]
    assert device_statistics([], ["min", "l2"]).shape == (0, 2)
    assert device_statistics([torch.ones(3)], []).shape == (1, 0)
    assert device_statistics([normal(3)], STATISTICS).isfinite().all()
    with pytest.raises(ConfigurationError, match="did you mean 'median'"):
        device_statistics([torch.ones(3)], ["medain"])


def test_a_packed_dtype_has_no_statistics() -> None:
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("an older torch")
    packed = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert torch.isnan(device_statistics([packed], STATISTICS)).all()


def test_statistics_record_no_gradient_and_change_nothing() -> None:
    weight = normal(5, 5).requires_grad_()
    before = weight.detach().clone()
    found = device_statistics([weight, weight * 2], STATISTICS)
    assert not found.requires_grad
    assert torch.equal(weight, before)
    with torch.inference_mode():
        assert device_statistics([normal(3)], ["sum"]).shape == (1, 1)


def test_statistics_do_not_read_from_the_device() -> None:
    # The meta device has shapes and no values, so any branch on a value, and any copy to the host, is an error there.
    tensors = [
        torch.empty(shape, device="meta", dtype=dtype)
        for shape in [(3, 4), (12,), (), (0,)]
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.complex64)
    ]
    found = device_statistics(tensors, STATISTICS)
    assert found.device.type == "meta"
    assert found.shape == (len(tensors), len(STATISTICS))


def test_the_tensors_of_a_model_take_a_few_kernels() -> None:
    sizes = [(1024, 1024), (1024,), (4096,)] * 96
    tensors = [torch.empty(size, dtype=torch.bfloat16, device="meta") for size in sizes]
    with Kernels() as kernels:
        device_statistics(tensors, ["mean", "std", "min", "max", "l2"])
    # 16 matrices are stacked to 16 million elements, and all vectors of a size: 8 groups.
    assert 8 * 5 <= kernels.count <= 8 * 12 + 1
    with Kernels() as of_one:
        device_statistics(tensors[:1], ["mean", "std", "min", "max", "l2"])
    assert kernels.count < len(tensors) * of_one.count / 20


def test_a_transposed_tensor_is_not_copied() -> None:
    base, counted = normal(6, 7, 8), []
    for tensor in (base, base.permute(2, 0, 1), base[::2, :, 1::3]):
        with Kernels() as kernels:
            device_statistics([tensor], ["mean", "l2"])
        counted.append(kernels.count)
    assert counted[0] == counted[1] < counted[2]


@pytest.mark.parametrize("dtype", [*dtypes(FLOATS), *dtypes(INTEGERS), torch.complex64], ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_statistics_along_an_axis_are_numpys_of_each_slice(dtype: Any, axis: int, monkeypatch: Any) -> None:
    limit_parts(monkeypatch, 40)  # several parts, and slices that are longer than one
    torch.manual_seed(0)
    tensor = (torch.randn(5, 7, 9) * 40).to(dtype).transpose(0, 1)
    found = device_statistics_by_axis(tensor, STATISTICS, axis)
    own = device_statistics([part.clone() for part in tensor.unbind(axis)], STATISTICS)
    assert set(found) == set(COMPLEX_STATISTICS if dtype.is_complex else STATISTICS)
    for name, values in found.items():
        expected = own[:, STATISTICS.index(name)]
        torch.testing.assert_close(values, expected, rtol=1e-9, atol=1e-9, equal_nan=True, msg=name)


def test_statistics_along_an_axis_of_nonfinite_numbers_are_numpys() -> None:
    tensor = torch.tensor([[1.0, math.nan], [math.inf, 2.0], [math.inf, -math.inf], [0.0, -3.0]])
    names = [name for name in STATISTICS if "std" not in name and "variance" not in name]
    found = device_statistics_by_axis(tensor, names, 0)
    expected = statistics_by_axis(tensor.numpy(), names, 0)
    for name in names:
        np.testing.assert_allclose(found[name].numpy(), expected[name], rtol=1e-9, err_msg=name)


def test_statistics_along_an_axis_of_nothing() -> None:
    found = device_statistics_by_axis(torch.zeros(3, 0), ["zero_count", "l2"], 0)
    assert found["zero_count"].tolist() == [0, 0, 0]
    assert found["l2"].isnan().all()
    assert device_statistics_by_axis(torch.zeros(0, 3), ["l2"], 0)["l2"].shape == (0,)
