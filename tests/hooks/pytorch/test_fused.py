"""Statistics that compiled code computes in one pass equal those by the operators of torch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

import tensortrial.hooks.pytorch as tt  # noqa: E402
from support.torch_capture import (  # noqa: E402
    capture_as_on_a_device,
    compile_statistics_by,
    limit_blocks,
    limit_device_batches,
)
from support.training import batches, run, seeded, train  # noqa: E402
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import UnsupportedValue  # noqa: E402
from tensortrial.hooks.pytorch import fused as fused_statistics  # noqa: E402
from tensortrial.hooks.pytorch.fused import FUSED, FusedStatistics  # noqa: E402
from tensortrial.hooks.pytorch.statistics import device_statistics, device_statistics_by_axis  # noqa: E402
from tensortrial.statistics.definitions import STATISTICS  # noqa: E402

QUICK = settings(max_examples=60, deadline=None, derandomize=True)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
SPECIAL = st.sampled_from([0.0, -0.0, 1.0, -2.5, 1e30, -1e-30, 1e-40, 3.3895e38, math.inf, -math.inf, math.nan])
NUMBERS = st.one_of(SPECIAL, st.floats(-100, 100, width=32))


def normal(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def in_one_pass(rows: Any, columns: tuple[str, ...] = FUSED) -> Any:
    return fused_statistics.statistics_of_parts(columns, *fused_statistics.cut(rows))


def check(rows: Any, found: Any = None) -> None:
    """Compare with the operators of torch, a sum on the scale of its magnitudes and a spread on that of the squares."""
    found = in_one_pass(rows) if found is None else found
    expected = device_statistics_by_axis(rows, FUSED, 0)
    assert found.shape == (len(rows), len(FUSED))
    assert found.dtype == torch.float64
    least = {name: torch.zeros(len(rows), dtype=torch.float64) for name in FUSED}
    least["sum"], least["mean"] = expected["l1"], expected["abs_mean"]
    for name in ("std", "abs_std"):
        least[name] = 1e-5 * expected["rms"]
        least[name.replace("std", "variance")] = (1e-5 * expected["rms"]) ** 2
    for name, values in zip(FUSED, found.unbind(1), strict=True):
        scale = least[name].nan_to_num(0, 0, 0) + expected[name].abs()
        is_finite = expected[name].isfinite()
        off = (values - expected[name]).abs() > 1e-9 * scale + 1e-300
        assert not (off & is_finite).any(), f"{name}: {values} for {expected[name]}"
        assert torch.equal(values[~is_finite].nan_to_num(7), expected[name][~is_finite].nan_to_num(7)), name


@pytest.fixture
def graphs() -> list[Any]:
    """Return the graphs that `on_cpu` compiles."""
    return []


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch, graphs: list[Any]) -> FusedStatistics:
    """Return the reductions that statistics of tensors on the CPU use here, compiled without generating code."""

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    reductions = FusedStatistics(("cpu",), backend=backend, patience=0)
    compile_statistics_by(monkeypatch, reductions)
    return reductions


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@QUICK
@given(values=st.lists(NUMBERS, min_size=1, max_size=40))
def test_statistics_in_one_pass_are_those_by_operators(dtype: Any, values: list[float]) -> None:
    row = torch.tensor(values, dtype=torch.float64).to(dtype)
    check(torch.stack([row, row.flip(0), row.sort().values]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@QUICK
@given(values=st.lists(NUMBERS, min_size=1, max_size=30))
def test_statistics_do_not_depend_on_the_blocks(dtype: Any, values: list[float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        limit_blocks(patch, 4)
        check(torch.tensor([values, values[::-1]], dtype=torch.float64).to(dtype))


@pytest.mark.parametrize("first", [0.0, 1.0, 1e4, -1e6])
def test_the_variance_is_right_whatever_the_first_element(first: float) -> None:
    for mean in (0.0, 1e3, 1e6):
        rows = normal(2, 200_000) + mean
        rows[:, 0] = first
        check(rows)


def test_equal_numbers_have_no_variance() -> None:
    found = in_one_pass(torch.full((3, 10_000), 0.1), ("std", "variance", "abs_std"))
    assert found.count_nonzero() == 0


@pytest.mark.parametrize("scale", [1e-44, 1e-30, 1e30, 3e38])
def test_the_largest_and_smallest_numbers_do_not_overflow(scale: float) -> None:
    check(torch.stack([torch.full((5000,), scale), normal(5000).clamp(-1, 1) * scale]))


@pytest.mark.slow
def test_tensors_of_a_model_have_the_same_statistics_compiled(
    on_cpu: FusedStatistics, graphs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = [
        *(normal(64, 64, seed=i).bfloat16() for i in range(3)),
        *(normal(100, 50, seed=i).T for i in range(3)),
        normal(5000),
        normal(7),
        torch.tensor(3.5),
        torch.zeros(0),
        normal(9).double(),
        torch.arange(5),
    ]
    found = device_statistics(tensors, STATISTICS)
    assert len(graphs) == 4
    monkeypatch.undo()
    expected = device_statistics(tensors, STATISTICS)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_matrices_of_other_sizes_share_the_compiled_code(on_cpu: FusedStatistics, graphs: list[Any]) -> None:
    names = ("std", "max")
    for shape in [(3, 100), (4, 4096), (17, 9), (2, 12_288), (5, 40_960), (3, 9000), (2, 13_001)]:
        found, expected = on_cpu.reduce(normal(*shape), names), in_one_pass(normal(*shape), names)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    # Short rows, long ones, and long ones with a rest.
    assert len(graphs) == 3


def test_code_is_compiled_once_a_kind_of_matrix_came_several_times() -> None:
    reductions, rows = FusedStatistics(("cpu",), backend="eager", patience=2), normal(3, 100)
    assert [reductions.reduce(rows, ("mean",)) is None for _ in range(4)] == [True, True, False, False]
    assert reductions.reduce(rows, ("max",)) is None
    assert reductions.reduce(rows.double(), ("mean",)) is None
    assert reductions.reduce(rows.to("meta"), ("mean",)) is None


def test_a_compiler_that_fails_is_a_warning_and_changes_no_statistic(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def backend(graph: Any, inputs: Any) -> Any:
        raise UnsupportedValue("no compiler\nat all")

    reductions = FusedStatistics(("cpu",), backend=backend, patience=0)
    compile_statistics_by(monkeypatch, reductions)
    for _ in range(2):
        assert device_statistics([torch.tensor([3.0, 4.0])], ["l2"]).item() == 5
    warnings = [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]
    assert len(warnings) == 1
    assert "no compiler" in warnings[0]


def test_statistics_are_computed_by_operators_if_torch_compile_is_off(
    on_cpu: FusedStatistics, caplog: pytest.LogCaptureFixture
) -> None:
    with torch.compiler.set_stance("force_eager"):
        assert device_statistics([torch.tensor([3.0, 4.0])], ["l2"]).item() == 5
    assert "torch.compile is turned off" in caplog.text


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("way", ["output", "operator"])
def test_statistics_are_compiled_while_compiled_code_runs(
    on_cpu: FusedStatistics,
    graphs: list[Any],
    make_hook: Any,
    out: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    way: str,
) -> None:
    monkeypatch.setenv("TENSORTRIAL_COMPILED_CAPTURE", way)
    capture_as_on_a_device(monkeypatch)
    limit_device_batches(monkeypatch, 1)  # each tensor is reduced when it is captured
    hook = make_hook(include_regex="fc1_output", reduction_config=tt.ReductionConfig(norms=["l2"]))
    net = torch.compile(seeded(), backend="eager", fullgraph=True)
    hook.register_module(net)
    train(net, 2)
    hook.close()
    assert len(graphs) == 1
    assert "computed by operators" not in caplog.text
    x = batches(1)[0][0]
    expected = torch.linalg.vector_norm(seeded().fc1(x).double()).item()
    assert create_trial(out).tensor("fc1_output_0").reduction_value(0, "l2") == pytest.approx(expected, rel=1e-6)


def test_a_variable_turns_compiled_statistics_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert fused_statistics.compiled_devices() == ()
    monkeypatch.setenv("TENSORTRIAL_FUSED_STATISTICS", "1")
    assert fused_statistics.compiled_devices() == ("cuda",)


INDUCTOR = """
    import re
    import torch
    from torch._inductor.utils import run_and_get_code
    from tensortrial.hooks.pytorch.fused import FusedStatistics
    from tensortrial.hooks.pytorch.statistics import device_statistics_by_axis

    torch._inductor.config.compile_threads = 1
    names = ("mean", "std", "min", "max", "l2")
    reductions = FusedStatistics(("cpu",), patience=0)
    for shape in [(8, 1024), (2, 12 * 4096)]:
        rows = torch.randn(*shape).bfloat16()
        found, (code,) = run_and_get_code(reductions.reduce, rows, names)
        expected = device_statistics_by_axis(rows, names, 0)
        torch.testing.assert_close(found, torch.stack(list(expected.values()), 1), rtol=1e-12, atol=1e-12)
        buffers = re.findall(r"empty_strided_cpu[(][(](.*?),?[ ]?[)]", code)
        sizes = {re.sub("s[0-9]+", "s", size).replace(" ", "") for size in buffers}
        print(code.count("async_compile.cpp_pybinding("), *sorted(sizes), sep=";")
"""


@pytest.mark.slow
def test_inductor_computes_five_statistics_by_one_kernel_without_a_copy_of_the_numbers(tmp_path: Path) -> None:
    done = run(INDUCTOR, tmp_path)
    assert done.returncode == 0, done.stderr
    # The memory that it needs: a number a row, a number a block, and the result.
    assert done.stdout.split() == ["1;s;s,5", "1;s;s,5;s,s"]
