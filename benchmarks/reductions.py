"""The time of nine statistics of one float32 array, compared with numpy's own calls and with the memory.

Prints milliseconds of CPU time, the best of the repetitions, each measured by turns in the same run, and the ratio of
each to `statistics`. numpy's calls one by one read the memory nine times over and more, and some of them in float32;
one `numpy.sum` and one `numpy.copyto` are what a single pass over the memory costs at least.

Then five and nine statistics of each floating point dtype with numkong, if it is installed, and without, and three
limits: to read the same bytes once, to copy them, and to add up x and x^2 of the same elements once with numkong, after
a conversion to float32 if there is one. Five statistics take at least the last, nine of numbers of both signs twice.

Then the nine of all tensors of a step of a model (weights, gradients, outputs of modules), and l2, mean and std of its
weights and gradients, computed as the writer does, in the CPU time of one thread, compared with one pass over the same
memory by torch and by numpy, and one copy.

    python benchmarks/reductions.py
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from training import MODELS, build_gpt, build_resnet

from tensortrial.statistics.batched import can_join, statistics_of_many
from tensortrial.statistics.blocks import blocks_of_singles, singles
from tensortrial.statistics.by_axis import statistics_by_axis
from tensortrial.statistics.definitions import STATISTICS
from tensortrial.statistics.kernels import numkong, sums_of_float32
from tensortrial.statistics.single import statistics
from tensortrial.statistics.sketch import sketch_of

ELEMENTS = 1 << 22
REPEATS = 30
"""The best of the repetitions counts."""
THREE = ("l2", "mean", "std")
FIVE = ("mean", "std", "min", "max", "l2")
NINE = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")
AIMS = {("float32", 5): 5, ("float32", 9): 2, ("bfloat16", 9): 4}  # times as fast as without numkong
Array = npt.NDArray[Any]


def one_by_one(array: Array) -> None:
    """Call numpy for each of the nine, with float64 sums, as a hook without this module would."""
    array.min(), array.max(), array.mean(dtype=np.float64)
    array.std(dtype=np.float64), array.var(dtype=np.float64), array.sum(dtype=np.float64)
    array.prod(dtype=np.float64), np.abs(array).sum(dtype=np.float64)
    np.sqrt(np.square(array, dtype=np.float64).sum())


def one_by_one_in_float32(array: Array) -> None:
    """Do the same without float64: quicker, and wrong for large counts and large means."""
    array.min(), array.max(), array.mean(), array.std(), array.var(), array.sum(), array.prod()
    np.abs(array).sum(), np.linalg.norm(array)


def hundred_times(array: Array) -> None:
    """Compute the nine often enough for the clock."""
    for _ in range(100):
        statistics(array, NINE)


@dataclass
class WithoutNumkong:
    """A call that is to be measured as if numkong were not installed."""

    call: Callable[[], object]


def seconds_of(call: Callable[[], object] | WithoutNumkong) -> float:
    """Return the CPU time of one call."""
    if isinstance(call, WithoutNumkong):
        installed = sys.modules.get("numkong")
        sys.modules["numkong"] = None  # type: ignore[assignment]
        detect_numkong()
        try:
            return seconds_of(call.call)
        finally:
            del sys.modules["numkong"]
            if installed:
                sys.modules["numkong"] = installed
            detect_numkong()
    start = time.thread_time()
    call()
    return time.thread_time() - start


def detect_numkong() -> None:
    """Find out whether numkong is installed, which takes milliseconds, and so is not to be measured."""
    numkong.cache_clear()
    numkong()


def measure(calls: Mapping[str, Callable[[], object] | WithoutNumkong]) -> dict[str, float]:
    """Return the best milliseconds of CPU time; by turns, so that a busy moment of the machine hits all alike."""
    best = dict.fromkeys(calls, float("inf"))
    with np.errstate(all="ignore"):
        for _ in range(REPEATS):
            for name, call in calls.items():
                best[name] = min(best[name], seconds_of(call) * 1e3)
    return best


def read(array: Array) -> None:
    """Read every byte once, in numpy's fastest way."""
    np.maximum.reduce(array.view(np.int8))


def add_up(array: Array) -> None:
    """Add up x and x^2, block by block."""
    flat = singles(array)
    assert flat is not None
    for _, block in blocks_of_singles(flat):
        sums_of_float32(block)


def measure_dtypes(array: Array) -> None:
    """Print what the statistics of each dtype take with numkong and without."""
    if numkong() is None:
        print("numkong is not installed: make env, or pip install 'tensortrial[fast]'")
        return
    for name in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        values = array.astype(name if name[:5] == "float" and name[5:].isdigit() else getattr(ml_dtypes, name))
        target = np.empty_like(values)
        for names in (FIVE, NINE):
            of_values = functools.partial(statistics, values, names)
            calls: dict[str, Callable[[], object] | WithoutNumkong] = {
                "with": of_values,
                "without": WithoutNumkong(of_values),
                "read": functools.partial(read, values),
                "copy": functools.partial(np.copyto, target, values),
                "sums": functools.partial(add_up, values),
            }
            taken = {call: best * 1e6 / array.size for call, best in measure(calls).items()}
            aim = AIMS.get((name, len(names)))
            print(
                f"{len(names)} of {name:14}{taken['with']:5.2f} ns an element, {taken['without']:.2f} without numkong, "
                f"{taken['without'] / taken['with']:.1f} x as fast{f' (aim {aim} x)' if aim else ''}; limits: "
                f"read {taken['read']:.2f}, copy {taken['copy']:.2f}, sums {taken['sums']:.2f}"
            )


def arrays_of_a_step(name: str) -> tuple[list[Array], int]:
    """Return copies of the outputs, weights and gradients of a model at one step, and how many are outputs."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x, y = build_gpt() if name == "gpt" else build_resnet()
    tensors: list[torch.Tensor] = []
    for module in model.modules():
        module.register_forward_hook(lambda module, inputs, output: tensors.append(output))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    outputs = len(tensors)
    for parameter in model.parameters():
        tensors += [parameter, parameter.grad]
    return [tensor.detach().clone(memory_format=torch.contiguous_format).numpy() for tensor in tensors], outputs


def of_all(arrays: list[Array], names: tuple[str, ...]) -> None:
    """Compute statistics of many arrays, as the writer does."""
    for array in arrays:
        if not can_join(array):
            statistics(array, names)
    statistics_of_many([array for array in arrays if can_join(array)], names)


def measure_model(name: str) -> None:
    """Print what statistics of a model's step take, in multiples of a pass over the memory."""
    arrays, outputs = arrays_of_a_step(name)
    print(f"{MODELS[name]}:")
    measure_arrays("the nine", NINE, arrays)
    measure_arrays("l2, mean and std", THREE, arrays[outputs:])


def measure_arrays(title: str, names: tuple[str, ...], arrays: list[Array]) -> None:
    """Print what statistics of many arrays take."""
    import torch

    tensors = [torch.from_numpy(array) for array in arrays]
    targets = [np.empty_like(array) for array in arrays]
    calls: dict[str, Callable[[], object] | WithoutNumkong] = {
        title: lambda: of_all(arrays, names),
        "the same without numkong": WithoutNumkong(lambda: of_all(arrays, names)),
        "limit: one torch.sum of each": lambda: [tensor.sum() for tensor in tensors],
        "limit: one numpy.sum of each": lambda: [array.sum() for array in arrays],
        "limit: one numpy.copyto of each": lambda: list(map(np.copyto, targets, arrays)),
    }
    best = measure(calls)
    print(f"{len(arrays)} tensors, {sum(array.nbytes for array in arrays) / 1e6:.1f} MB")
    for call, milliseconds in best.items():
        print(f"{call:34}{milliseconds:9.3f} ms  {milliseconds / best[title]:7.2f} x {title}")


def main() -> None:
    """Print the table."""
    array = np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32)
    target, whole = np.empty_like(array), array.size // 1024 * 1024
    best = measure(
        {
            "statistics, the nine": lambda: statistics(array, NINE),
            "statistics, without numkong": WithoutNumkong(lambda: statistics(array, NINE)),
            "statistics, the five": lambda: statistics(array, FIVE),
            "statistics, l2 alone": lambda: statistics(array, ("l2",)),
            "statistics, all but the medians": lambda: statistics(array, [n for n in STATISTICS if "median" not in n]),
            "statistics, the median": lambda: statistics(array, ("median",)),
            "sketch of quantiles": lambda: sketch_of(array),
            "statistics, the nine of each row": lambda: statistics_by_axis(array[:whole].reshape(-1, 1024), NINE, 0),
            "statistics, the nine of each column": lambda: statistics_by_axis(array[:whole].reshape(-1, 1024), NINE, 1),
            "numpy one by one, float64": lambda: one_by_one(array),
            "numpy one by one, float32": lambda: one_by_one_in_float32(array),
            "limit: one numpy.sum": lambda: array.sum(),
            "limit: one numpy.copyto": lambda: np.copyto(target, array),
        }
    )
    ours = best["statistics, the nine"]
    print(f"{array.size} float32, {array.nbytes / 2**20:.1f} MiB, numpy {np.__version__}")
    for name, milliseconds in best.items():
        print(f"{name:34}{milliseconds:9.3f} ms  {milliseconds / ours:7.2f} x the nine")
    for size in (1, 10, 100, 1000, 10_000):
        taken = measure({"": functools.partial(hundred_times, array[:size])})[""]
        print(f"the nine of {size:6} elements {taken * 10:16.1f} us")
    measure_dtypes(array)
    for name in MODELS:
        measure_model(name)


if __name__ == "__main__":
    main()
