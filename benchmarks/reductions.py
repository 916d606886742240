"""The time of nine statistics of one float32 array, compared with numpy's own calls and with the memory.

Prints milliseconds, the best of the repetitions, each measured by turns in the same run, and the ratio of each to
`statistics`. numpy's calls one by one read the memory nine times over and more, and some of them in float32; one
`numpy.sum` and one `numpy.copyto` are what a single pass over the memory costs at least.

Then five and nine statistics of each floating point dtype with numkong, if it is installed, and without.

Then the same for all tensors of a step of a model (weights, gradients, outputs of modules), computed as the writer
does, in the CPU time of one thread, compared with one pass over the same memory by torch and by numpy, and one copy.

    python benchmarks/reductions.py --megabytes 16 --repeat 30
"""

from __future__ import annotations

import argparse
import functools
import statistics as medians
import sys
import time
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt
from training import MODELS, build_gpt, build_resnet

from tensortrial.statistics.batched import can_join, statistics_of_many
from tensortrial.statistics.by_axis import statistics_by_axis
from tensortrial.statistics.definitions import STATISTICS
from tensortrial.statistics.kernels import numkong
from tensortrial.statistics.single import statistics
from tensortrial.statistics.sketch import sketch_of

FIVE = ("mean", "std", "min", "max", "l2")
NINE = ("min", "max", "mean", "std", "variance", "sum", "prod", "l1", "l2")
Array = npt.NDArray[np.float32]


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


def without_numkong(call: Callable[[], object]) -> None:
    """Call what would be computed if numkong were not installed."""
    installed = sys.modules.get("numkong")
    sys.modules["numkong"] = None  # type: ignore[assignment]
    numkong.cache_clear()
    try:
        call()
    finally:
        del sys.modules["numkong"]
        if installed:
            sys.modules["numkong"] = installed
        numkong.cache_clear()


def measure(calls: dict[str, Callable[[], object]], repeat: int) -> dict[str, float]:
    """Return the best milliseconds of each call; by turns, so that a busy moment of the machine hits all alike."""
    best = dict.fromkeys(calls, float("inf"))
    with np.errstate(all="ignore"):
        for _ in range(repeat):
            for name, call in calls.items():
                start = time.perf_counter()
                call()
                best[name] = min(best[name], (time.perf_counter() - start) * 1e3)
    return best


def measure_dtypes(array: Array, repeat: int) -> None:
    """Print what the statistics of each dtype take with numkong and without."""
    if numkong() is None:
        print("numkong is not installed: make env, or pip install 'tensortrial[fast]'")
        return
    for name in ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"):
        values = array.astype(name if name[:5] == "float" and name[5:].isdigit() else getattr(ml_dtypes, name))
        for names in (FIVE, NINE):
            of_values = functools.partial(statistics, values, names)
            best = measure({"with": of_values, "without": functools.partial(without_numkong, of_values)}, repeat)
            per_element = {call: milliseconds * 1e6 / array.size for call, milliseconds in best.items()}
            print(
                f"{len(names)} of {name:14} {per_element['with']:6.2f} ns an element, "
                f"{per_element['without']:6.2f} without numkong: {best['with'] / best['without']:.2f} x"
            )


def arrays_of_a_step(name: str) -> list[Array]:
    """Return copies of the weights, gradients and outputs of a model at one step."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, x, y = build_gpt() if name == "gpt" else build_resnet()
    tensors: list[torch.Tensor] = []
    for module in model.modules():
        module.register_forward_hook(lambda module, inputs, output: tensors.append(output))
    torch.nn.functional.cross_entropy(model(x), y).backward()
    for parameter in model.parameters():
        tensors += [parameter, parameter.grad]
    return [tensor.detach().clone(memory_format=torch.contiguous_format).numpy() for tensor in tensors]


def of_all(arrays: list[Array]) -> None:
    """Compute the nine of many arrays, as the writer does."""
    for array in arrays:
        if not can_join(array):
            statistics(array, NINE)
    statistics_of_many([array for array in arrays if can_join(array)], NINE)


def measure_model(name: str, repeat: int) -> None:
    """Print what the nine of a model's step take, in multiples of a pass over the memory."""
    import torch

    arrays = arrays_of_a_step(name)
    tensors = [torch.from_numpy(array) for array in arrays]
    targets = [np.empty_like(array) for array in arrays]
    calls = {
        "the nine of each": lambda: of_all(arrays),
        "the same without numkong": lambda: without_numkong(lambda: of_all(arrays)),
        "limit: one torch.sum of each": lambda: [tensor.sum() for tensor in tensors],
        "limit: one numpy.sum of each": lambda: [array.sum() for array in arrays],
        "limit: one numpy.copyto of each": lambda: list(map(np.copyto, targets, arrays)),
    }
    taken: dict[str, list[float]] = {call: [] for call in calls}
    for _ in range(repeat):
        for call, times in taken.items():
            begun = time.thread_time()
            calls[call]()
            times.append(time.thread_time() - begun)
    print(f"{MODELS[name]}: {len(arrays)} tensors, {sum(array.nbytes for array in arrays) / 1e6:.1f} MB")
    ours = medians.median(taken["the nine of each"])
    for call, times in taken.items():
        median = medians.median(times)
        print(f"{call:34}{median * 1e3:9.3f} ms of CPU  {median / ours:7.2f} x the nine")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=16, help="size of the array (default 16)")
    parser.add_argument("--repeat", type=int, default=30, help="repetitions, of which the best counts (default 30)")
    options = parser.parse_args()
    array = np.random.default_rng(0).standard_normal(int(options.megabytes * 2**18)).astype(np.float32)
    target, whole = np.empty_like(array), array.size // 1024 * 1024
    best = measure(
        {
            "statistics, the nine": lambda: statistics(array, NINE),
            "statistics, without numkong": lambda: without_numkong(lambda: statistics(array, NINE)),
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
        },
        options.repeat,
    )
    ours = best["statistics, the nine"]
    print(f"{array.size} float32, {array.nbytes / 2**20:.1f} MiB, numpy {np.__version__}")
    for name, milliseconds in best.items():
        print(f"{name:34}{milliseconds:9.3f} ms  {milliseconds / ours:7.2f} x the nine")
    for size in (1, 10, 100, 1000, 10_000):
        taken = measure({"": functools.partial(hundred_times, array[:size])}, options.repeat)[""]
        print(f"the nine of {size:6} elements {taken * 10:16.1f} us")
    measure_dtypes(array, options.repeat)
    for name in MODELS:
        measure_model(name, options.repeat)


if __name__ == "__main__":
    main()
