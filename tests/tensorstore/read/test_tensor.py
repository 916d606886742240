"""Every method of a tensor, as the reference documents it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, GLOBAL, PREDICT, TRAIN, Job
from tensortrial.errors import (
    ConfigurationError,
    CorruptFile,
    InvalidWorker,
    StepNotYetAvailable,
    StepUnavailable,
    TensorUnavailableForStep,
)
from tensortrial.read.trial import Trial
from tensortrial.statistics.definitions import STATISTICS

REDUCED = {"statistics": ("max", "abs_l2", "nan_count"), "raw": False}


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    """Two workers, TRAIN at even and EVAL at odd steps; `w` everywhere, `one` of worker_10 only, `reduced` not raw."""
    folder = tmp_path_factory.mktemp("two_workers")
    for number, job in {float(rank): Job(folder, f"worker_{rank}", 2) for rank in (10, 2)}.items():
        for _ in range(4):
            step = job.begin(EVAL if job.next_global_step % 2 else TRAIN)
            w = np.arange(6.0).reshape(2, 3) * number + step.global_step
            values = {"w": w, "reduced": (REDUCED, -w), "loss": number}
            if number == 10:
                values["one"] = np.array([number], np.int32)
            if step.global_step == 2:
                values["late"] = w
            job.put(step, values, closes=True)
        job.close()
    with tensortrial.create_trial(folder) as trial:
        yield trial


def test_steps(trial: Trial) -> None:
    assert [trial.tensor("w").steps(mode) for mode in (GLOBAL, TRAIN, EVAL, PREDICT)] == [
        [0, 1, 2, 3],
        [0, 1],
        [0, 1],
        [],
    ]
    assert trial.tensor("late").steps() == [2]
    assert trial.tensor("late").steps(mode=TRAIN, show_incomplete_steps=True) == [1]


def test_incomplete_steps_are_shown_when_asked_for(tmp_path: Path) -> None:
    first, second = (Job(tmp_path, f"worker_{number}", 2) for number in range(2))
    for _ in range(3):
        first.step({"a": 1.0})
    first.step({"b": 1.0})
    second.step({"a": 1.0})
    second.step({"c": 1.0})
    trial = tensortrial.create_trial(tmp_path)
    assert (trial.steps(), trial.steps(show_incomplete_steps=True)) == ([0, 1], [0, 1, 2, 3])
    assert (trial.tensor("a").steps(), trial.tensor("a").steps(show_incomplete_steps=True)) == ([0, 1], [0, 1, 2])
    assert trial.tensor("b").steps() == []
    # What is there of an incomplete step can be read.
    assert trial.tensor("b").value(3) == 1
    first.close()
    second.close()
    assert trial.tensor("a").steps() == [0, 1, 2]


def test_value(trial: Trial) -> None:
    w = trial.tensor("w")
    assert w.value(1).tolist() == [[1, 3, 5], [7, 9, 11]]
    assert w.value(step_num=0, mode=EVAL, worker="worker_10")[0].tolist() == [1, 11, 21]
    assert trial.tensor("one").value(0).dtype == np.int32
    assert trial.tensor("loss").value(0).shape == ()
    w.value(1)[0] = 9  # its own memory
    assert w.value(1)[0, 0] == 1


def test_values(trial: Trial) -> None:
    w = trial.tensor("w")
    assert {step: value[0, 0] for step, value in w.values().items()} == {0: 0, 1: 1, 2: 2, 3: 3}
    assert {step: value[0, 1] for step, value in w.values(mode=EVAL, worker="worker_10").items()} == {0: 11, 1: 13}
    assert trial.tensor("reduced").values() == {}
    assert trial.tensor("w").values(PREDICT) == {}


@pytest.mark.parametrize("size", [0, 1, 3, 5000, 40_000])
def test_values_that_share_memory_are_apart_in_it(tmp_path: Path, size: int) -> None:
    with Job(tmp_path) as job:
        for number in range(150):
            job.step(
                {
                    "a": np.full(size, number, np.uint8),
                    "b": np.full(size, number, np.complex128),
                    "c": np.uint64(2**63 + number),
                }
            )
    trial = tensortrial.create_trial(tmp_path)
    for name, dtype in (("a", np.uint8), ("b", np.complex128)):
        values = trial.tensor(name).values()
        for step, value in values.items():
            assert (value.dtype, value.shape, value.flags.c_contiguous) == (dtype, (size,), True)
            assert value.ctypes.data % 16 == 0 or not size
            assert (value == step).all()
            value[...] = 200 - step
        assert all((value == 200 - step).all() for step, value in values.items())
    assert trial.tensor("c").values() == {step: 2**63 + step for step in range(150)}


def test_one_value_of_many_that_is_not_where_the_index_says(tmp_path: Path) -> None:
    with Job(tmp_path, flush_seconds=3600) as job:
        for number in range(5):
            job.step({"a": np.full(10, float(number)), "b": np.zeros(3)})
    (chunk,) = tmp_path.glob("tensors/**/*.parquet")
    data = bytearray(chunk.read_bytes())
    place = data.index(np.full(10, 3.0).tobytes())
    for damaged in (data[: place - 4] + b"\x51" + data[place - 3 :], data[: place + 79]):
        chunk.write_bytes(damaged)
        tensor = tensortrial.create_trial(tmp_path).tensor("a")
        with pytest.raises(CorruptFile, match="'a' at step 3"):
            tensor.values()
        assert (tensor.value(2) == 2).all()


def test_shapes(trial: Trial) -> None:
    assert trial.tensor("w").shape(1) == trial.tensor("reduced").shape(0, mode=EVAL, worker="worker_2") == (2, 3)
    assert trial.tensor("one").shapes(mode=EVAL) == {0: (1,), 1: (1,)}
    assert trial.tensor("reduced").shapes() == dict.fromkeys(range(4), (2, 3))
    assert trial.tensor("loss").shape(0) == ()


def test_workers(trial: Trial) -> None:
    assert trial.tensor("w").workers(1) == ["worker_2", "worker_10"]
    assert trial.tensor("one").workers(0, mode=EVAL) == ["worker_10"]


@pytest.mark.parametrize(
    ("step", "n", "steps"),
    [(3, 2, [2, 3]), (2, 9, [0, 1, 2]), (99, 1, [3]), (0, 1, [0]), (-1, 3, []), (3, 0, []), (3, -1, [])],
)
def test_prev_steps(trial: Trial, step: int, n: int, steps: list[int]) -> None:
    assert trial.tensor("w").prev_steps(step, n) == steps
    if n >= 0:
        assert trial.tensor("w").prev_steps(step, np.uint64(n)) == steps  # type: ignore[arg-type]


def test_prev_steps_of_a_mode_or_all_of_them(trial: Trial) -> None:
    assert trial.tensor("w").prev_steps(5, 5, mode=EVAL) == [0, 1]
    assert trial.tensor("w").prev_steps(3, None) == [0, 1, 2, 3]


def test_a_worker_that_did_not_save_it(trial: Trial) -> None:
    one = trial.tensor("one")
    for act in (lambda worker: one.value(0, worker=worker), lambda worker: one.values(worker=worker)):
        for worker in ("worker_2", "worker_99"):
            with pytest.raises(InvalidWorker, match="worker_10") as caught:
                act(worker)
            assert (caught.value.worker, caught.value.known) == (worker, ["worker_10"])


def test_a_step_at_which_it_was_not_saved(trial: Trial) -> None:
    late = trial.tensor("late")
    for act in (
        late.value,
        late.shape,
        late.workers,
        late.reduction_values,
        lambda step: late.reduction_value(step, "min"),
    ):
        with pytest.raises(TensorUnavailableForStep) as caught:
            act(0)
        assert (caught.value.tname, caught.value.step, caught.value.has_reductions) == ("late", 0, False)
        for never in (4, -1):
            with pytest.raises(StepUnavailable):
                act(never)


def test_a_step_that_may_still_come(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.step({"a": 1.0}, mode=TRAIN)
        a = tensortrial.create_trial(tmp_path).tensor("a")
        for step, mode in ((1, GLOBAL), (1, TRAIN), (0, EVAL)):
            with pytest.raises(StepNotYetAvailable) as caught:
                a.value(step, mode)
            assert (caught.value.step, caught.value.mode) == (step, mode)


# ----------------------------------------------------------------------------------------------------------- reductions


def test_a_saved_reduction(trial: Trial) -> None:
    reduced = trial.tensor("reduced")
    value = reduced.reduction_value(1, "max", worker="worker_2")
    assert (value, value.shape, value.dtype) == (-1, (), np.float64)
    assert reduced.reduction_value(0, "l2", abs=True, mode=TRAIN) == pytest.approx(np.sqrt(55) * 2)
    assert reduced.reduction_value(0, "abs_l2") == reduced.reduction_value(0, "l2", abs=True)
    assert reduced.reduction_values(1).keys() == {("max", False), ("l2", True), ("nan_count", False)}
    assert trial.tensor("w").reduction_values(1) == {}


def test_a_reduction_is_a_float(trial: Trial) -> None:
    reduced = trial.tensor("reduced")
    found = reduced.reduction(0, "l2", TRAIN, abs=True)
    assert (type(found), found) == (float, reduced.reduction_value(0, "abs_l2", mode=TRAIN))
    assert reduced.reduction(1, "max", worker="worker_2") == -1
    assert trial.tensor("w").reduction(1, "digest") == trial.tensor("w").reduction_value(1, "digest")
    with pytest.raises(ConfigurationError, match="meen"):
        reduced.reduction(1, "meen")


@pytest.mark.parametrize("name", STATISTICS)
def test_a_reduction_computed_from_the_raw_value(trial: Trial, name: str) -> None:
    plain = name.removeprefix("abs_")
    value = trial.tensor("w").reduction_value(1, plain, abs=name.startswith("abs_"))
    again = np.arange(6.0) * 2 + 1  # positive, and evenly spaced
    expected = {
        "min": 1,
        "max": 11,
        "mean": 6,
        "median": 6,
        "sum": 36,
        "prod": 10395,
        "std": again.std(),
        "variance": again.var(),
        "l1": 36,
        "l2": np.sqrt((again**2).sum()),
        "rms": np.sqrt((again**2).mean()),
        "skewness": 0,
        "kurtosis": ((again - 6) ** 4).mean() / again.var() ** 2,
    }
    assert value == pytest.approx(0 if plain.endswith("_count") else expected[plain])


def test_a_reduction_that_is_not_there(trial: Trial) -> None:
    reduced = trial.tensor("reduced")
    with pytest.raises(TensorUnavailableForStep, match=r"'reduced'.*neither its min") as caught:
        reduced.reduction_value(1, "min")
    assert caught.value.has_reductions
    with pytest.raises(TensorUnavailableForStep, match="only reductions") as raw:
        reduced.value(1)
    assert raw.value.has_reductions
    with pytest.raises(ConfigurationError, match="'mean'"):
        reduced.reduction_value(1, "meen")


def test_a_reduction_that_a_dtype_does_not_have(tmp_path: Path) -> None:
    with Job(tmp_path) as job:
        job.step({"s": np.array(["a", "b"]), "c": np.array([3 + 4j, 0])})
    trial = tensortrial.create_trial(tmp_path)
    with pytest.raises(TensorUnavailableForStep, match="not defined for dtype"):
        trial.tensor("s").reduction_value(0, "mean")
    assert trial.tensor("c").reduction_value(0, "l1") == 5


def test_histograms(tmp_path: Path) -> None:
    values = np.linspace(0, 1, 100)
    with Job(tmp_path) as job:
        job.step({"a": values}, histogram=True)
        job.step({"a": values})
    a = tensortrial.create_trial(tmp_path).tensor("a")
    found = a.histogram(0)
    assert found is not None
    edges, counts = found
    assert (len(edges), counts.sum(), edges[0], edges[-1]) == (len(counts) + 1, 100, 0, 1)
    assert a.histogram(1) is None
    assert "'a'" in repr(a)
