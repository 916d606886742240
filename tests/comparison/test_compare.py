"""Two runs are compared row by row; the first difference is named with its step, tensor and worker."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

import tensortrial
from support import compacted_runs
from support import flipped_runs as flips
from support.meanwhile import Meanwhile
from support.runs import EVAL, TRAIN, Job
from tensortrial.comparison import Comparison
from tensortrial.errors import ConfigurationError, RunNotFound
from tensortrial.maintenance.compaction import compact

NAN = float("nan")


def write(folder: Path, steps: int = 4, workers: int = 1, **changed: Any) -> Path:
    """Write a run. `changed` replaces values of the last worker by name: `{"w@2": array}` at step 2."""
    with ExitStack() as stack:
        jobs = [stack.enter_context(Job(folder, f"worker_{n}", workers, is_ordered=True)) for n in range(workers)]
        for job in jobs:
            for step in range(steps):
                values = {"x_input_0": np.arange(4.0) + step, "x_output_0": np.full((2, 3), step, np.float32)}
                values["loss"] = 0.5
                if job is jobs[-1]:
                    values |= {key.partition("@")[0]: each for key, each in changed.items() if key.endswith(f"@{step}")}
                job.step(values)
    return folder


@pytest.mark.slow
def test_flipped_bits_are_named(tmp_path: Path) -> None:
    """The finder `compared` flips others."""
    equal = flips.write(tmp_path / "equal")
    with tensortrial.create_trial(equal) as trial:
        for number, flip in enumerate(flips.flips(6, seed=7)):
            flips.check(flip, trial, tmp_path / str(number))


def test_equal_runs_are_the_same(tmp_path: Path) -> None:
    found = tensortrial.compare(flips.write(tmp_path / "a"), flips.write(tmp_path / "b"))
    assert found.same
    assert found.sentence == "no difference: 60 saved tensors of 5 steps agree"
    assert found.notes == []


def test_a_run_is_the_same_as_itself(tmp_path: Path) -> None:
    run = flips.write(tmp_path / "a")
    assert tensortrial.compare(run, run).same


def test_the_sentence_names_step_tensor_place_and_distance(tmp_path: Path) -> None:
    changed = np.full((2, 3), 2, np.float32)
    changed[1, 1] = np.nextafter(np.float32(2), np.float32(3))
    found = tensortrial.compare(write(tmp_path / "a"), write(tmp_path / "b", **{"x_output_0@2": changed}))
    assert str(found).splitlines() == [
        "first difference at step 2: x_output_0 (the 2nd of 3 tensors of the step; its inputs agree), "
        "max |a-b| 2.4e-7, 1 ulp",
        "the last that agrees before it: x_input_0",
    ]
    (row,) = found.to_arrow_table().to_pylist()
    assert (row["step"], row["name"], row["kind"], row["elements"], row["ulps"]) == (2, "x_output_0", "value", 1, 1)
    assert found.to_json()["first"]["difference"]["max_abs"] == pytest.approx(2.4e-7, rel=0.1)


def test_each_tensor_has_its_first_differing_step(tmp_path: Path) -> None:
    changes = {"x_output_0@3": np.zeros((2, 3), np.float32), "x_input_0@5": np.zeros(4), "loss@4": 0.25}
    changes |= {"loss@7": 1.0, "x_output_0@8": np.zeros((2, 3), np.float32)}
    found = tensortrial.compare(write(tmp_path / "a", 40), write(tmp_path / "b", 40, **changes))
    assert [(each.step, each.name) for each in found.differences] == [
        (3, "x_output_0"),
        (4, "loss"),
        (5, "x_input_0"),
    ]


def test_the_first_of_a_step_is_that_which_was_executed_first(tmp_path: Path) -> None:
    changes = {"loss@2": 0.25, "x_output_0@2": np.zeros((2, 3), np.float32), "x_input_0@3": np.zeros(4)}
    found = tensortrial.compare(write(tmp_path / "a"), write(tmp_path / "b", **changes))
    assert [each.name for each in found.differences] == ["x_output_0", "loss", "x_input_0"]


# Two values, whether they are the same bit by bit, and whether they are within a tolerance.
VALUES: list[tuple[Any, Any, bool, bool]] = [
    (np.array([NAN, 1.0]), np.array([NAN, 1.0]), True, True),
    (np.array([NAN, 1.0]), np.array([np.copysign(NAN, -1), 1.0]), False, True),
    (np.array([0.0, 1.0]), np.array([-0.0, 1.0]), False, True),
    (np.array([np.inf, 1.0]), np.array([np.inf, 1.0]), True, True),
    (np.array([1.0, 1.0]), np.array([np.inf, 1.0]), False, False),
    (np.array([NAN, 1.0]), np.array([1.0, 1.0]), False, False),
    (np.array([1.0, 1.0]), np.array([1.0005, 1.0]), False, True),
    (np.array([1.0, 1.0]), np.array([1.01, 1.0]), False, False),
    (0.0, -0.0, False, True),
    (NAN, NAN, True, True),
    (1.0, 1.0005, False, True),
    (1.0, NAN, False, False),
    (np.inf, 1.0, False, False),
    (1.0, np.inf, False, False),
]


def test_nan_zeros_and_infinities(tmp_path: Path) -> None:
    runs = [
        write(tmp_path / name, **{f"v{number}@1": case[side] for number, case in enumerate(VALUES)})
        for side, name in enumerate("ab")
    ]
    for agrees, tolerance in ((2, {}), (3, {"rtol": 1e-3, "atol": 1e-12})):
        found = tensortrial.compare(*runs, **tolerance)
        different = {f"v{number}" for number, case in enumerate(VALUES) if not case[agrees]}
        assert {each.name for each in found.differences} == different


def test_floats_agree_within_steps_of_their_dtype(tmp_path: Path) -> None:
    value = np.array([1, -2, 0, 3e30], np.float32)
    moved = value.copy()
    for _ in range(3):
        moved = np.nextafter(moved, np.float32(np.inf))
    runs = write(tmp_path / "a", **{"v@1": value}), write(tmp_path / "b", **{"v@1": moved})
    assert tensortrial.compare(*runs, ulps=3).same
    found = tensortrial.compare(*runs, ulps=2)
    assert found.differences[0].ulps == 3
    assert found.differences[0].elements == 4


def test_dtypes_and_shapes_that_differ_are_said(tmp_path: Path) -> None:
    a = write(tmp_path / "a", **{"v@1": np.ones(2), "u@2": np.ones((2, 3))})
    b = write(tmp_path / "b", **{"v@1": np.ones(2, np.float32), "u@2": np.ones((3, 2))})
    found = tensortrial.compare(a, b)
    assert [(each.kind, str(each)) for each in found.differences] == [
        ("dtype", "float64 and float32; max |a-b| 0"),
        ("shape", "shapes 2x3 and 3x2"),
    ]
    assert [each.kind for each in tensortrial.compare(a, b, rtol=1e-6).differences] == ["shape"]


def test_what_only_one_run_has_is_listed(tmp_path: Path) -> None:
    a = write(tmp_path / "a", 6, **{"extra@1": np.ones(2)})
    found = tensortrial.compare(a, write(tmp_path / "b", 4, workers=2))
    assert found.first is None
    assert not found.same
    assert (found.only_a.tensors, found.only_a.steps, found.only_b.workers) == (
        ["extra"],
        {"GLOBAL": [4, 5]},
        ["worker_1"],
    )
    assert str(found).splitlines()[1:] == [
        f"a is {tmp_path / 'a'}, b is {tmp_path / 'b'}",
        "only a has 1 tensor: extra",
        "only a has 2 steps: 4, 5",
        "only b has 1 worker: worker_1",
    ]


def test_a_tensor_that_one_run_lacks_at_a_step_differs_there(tmp_path: Path) -> None:
    a = write(tmp_path / "a", **{"extra@1": np.ones(2), "extra@2": np.ones(2)})
    b = write(tmp_path / "b", **{"extra@2": np.ones(2)})
    (difference,) = tensortrial.compare(a, b).differences
    assert (difference.step, difference.kind) == (1, "only a")
    assert f"a is {a}, b is {b}" in str(tensortrial.compare(a, b))
    (difference,) = tensortrial.compare(b, a).differences
    assert (difference.step, difference.kind, difference.label) == (1, "only b", "extra")


def test_renamed_tensors_are_compared(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for folder, prefix in ((a, "module."), (b, "")):
        with Job(folder, is_ordered=True) as job:
            for step in range(3):
                job.step({f"{prefix}w": np.full(3, step + (folder == b and step == 2)), f"{prefix}v": np.ones(2)})
    assert tensortrial.compare(a, b).only_a.tensors == ["module.v", "module.w"]
    found = tensortrial.compare(a, b, map={r"^module\.": ""})
    (difference,) = found.differences
    assert (difference.step, difference.name, difference.name_b) == (2, "module.w", "w")
    assert tensortrial.compare(a, b, map={r"^module\.": ""}, regex="v$").same
    with pytest.raises(ConfigurationError, match="the same name"):
        tensortrial.compare(a, b, map={".*": "w"})
    with pytest.raises(ConfigurationError, match="not a regular expression"):
        tensortrial.compare(a, b, map={"(": "w"})


def test_two_workers_and_two_steps_of_a_run_are_compared(tmp_path: Path) -> None:
    write(tmp_path / "run", workers=2, **{"x_output_0@2": np.zeros((2, 3), np.float32)})
    found = tensortrial.compare(tmp_path / "run", workers=("worker_0", "worker_1"))
    assert found.sentence.startswith("first difference at step 2: x_output_0 of worker_0 (the 2nd of 3 tensors")
    assert found.differences[0].worker_b == "worker_1"
    steps = tensortrial.compare(tmp_path / "run", steps=(0, 1), regex="x_|loss")
    assert [(each.label, each.global_step, each.global_step_b) for each in steps.differences[:1]] == [
        ("x_input_0", 0, 1)
    ]
    assert "loss" not in [each.label for each in steps.differences]
    run = tmp_path / "run"
    both = tensortrial.compare(run, workers=("worker_0", "worker_1"), steps=(1, 2))
    assert both.sides == (f"worker_0 of step 1 of {run}", f"worker_1 of step 2 of {run}")
    for wrong in ({"workers": ("worker_0", "worker_7")}, {"steps": (0, 70)}, {}, {"workers": None, "rtol": -1.0}):
        with pytest.raises(ConfigurationError):
            tensortrial.compare(tmp_path / "run", **wrong)


def test_steps_are_compared_mode_by_mode(tmp_path: Path) -> None:
    for folder, modes in ((tmp_path / "a", "TETE"), (tmp_path / "b", "TTET")):
        counts = {"T": 0, "E": 0}
        with Job(folder, is_ordered=True) as job:
            for mode in modes:
                value = np.full(3, counts[mode] + (mode == "E") * 10)
                job.step({"v": value}, TRAIN if mode == "T" else EVAL)
                counts[mode] += 1
    found = tensortrial.compare(tmp_path / "a", tmp_path / "b")
    assert found.first is None
    assert (found.only_a.steps, found.only_b.steps) == ({"EVAL": [1]}, {"TRAIN": [2]})
    assert tensortrial.compare(tmp_path / "a", tmp_path / "b", mode="TRAIN").only_a.steps == {}


def test_runs_without_values_are_compared_by_their_statistics(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("same", 1.0), ("b", 1.25)):
        with Job(tmp_path / name, is_ordered=True) as job:
            for step in range(3):
                values = {"w": np.array([1.0, value if step == 1 else 1.0]), "v": np.array([NAN, 2.0])}
                job.step(values, statistics=("mean", "max"), raw=False)
    found = tensortrial.compare(tmp_path / "a", tmp_path / "b")
    assert [(each.step, each.name, str(each)) for each in found.differences] == [
        (1, "w", "saved statistics differ: max, mean")
    ]
    assert "can agree where values differ" in found.notes[0]
    assert tensortrial.compare(tmp_path / "a", tmp_path / "same").same
    assert tensortrial.compare(tmp_path / "a", tmp_path / "b", rtol=0.5).same
    assert not tensortrial.compare(tmp_path / "a", tmp_path / "b", rtol=0.1).same
    assert tensortrial.compare(tmp_path / "a", tmp_path / "b", rtol=np.float64(0.5)).same


def test_a_damaged_index_file_is_said(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    (file, *_) = sorted((b / "index").rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-100])
    found = tensortrial.compare(a, b)
    assert not found.same
    assert list(found.damaged) == [str(file.relative_to(b))]


def test_a_damaged_value_is_said_where_it_is_needed(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b", **{"x_input_0@1": np.zeros(4)})
    shutil.rmtree(b / "tensors")
    found = tensortrial.compare(a, b, rtol=1e-3)
    assert [(each.step, each.kind) for each in found.differences] == [(1, "unreadable")]
    assert found.damaged
    assert tensortrial.compare(a, b).differences[0].name == "x_input_0"


def test_runs_without_steps_have_nothing_to_compare(tmp_path: Path) -> None:
    for name in "ab":
        Job(tmp_path / name).close()
    found: Comparison = tensortrial.compare(tmp_path / "a", tmp_path / "b")
    assert found.sentence == "there is nothing to compare: no tensor of a step is in both"
    assert found.to_arrow_table().num_rows == 0
    with pytest.raises(RunNotFound):
        tensortrial.compare(tmp_path / "a", tmp_path / "nowhere")


def test_hostile_names_are_compared(tmp_path: Path) -> None:
    name = "a'; drop table catalogue.a; --\"\n☃"
    a, b = write(tmp_path / "a", **{f"{name}@1": np.ones(2)}), write(tmp_path / "b", **{f"{name}@1": np.zeros(2)})
    assert tensortrial.compare(a, b, map={"q": "r"}).differences[0].name == name


HOSTILE = ["\x1b[2Jgone", "new\nline\nno difference", "L" * 200_000, "\u202egnirts", "", "\x85", "a\rb", "%s{0}"]


def test_hostile_names_stay_in_the_line_that_names_them(tmp_path: Path) -> None:
    for folder, last in ((tmp_path / "a", 1.0), (tmp_path / "b", 2.0)):
        with Job(folder, is_ordered=True) as job:
            for name in HOSTILE:
                job.step({name: np.array([1.0, last]), f"{folder.name}{name}": np.ones(2)})
    a, b = (tensortrial.create_trial(tmp_path / name) for name in "ab")
    for number, name in enumerate(HOSTILE):
        found = tensortrial.compare(a, b, steps=(number, number))
        assert found.differences[0].name == name
        text = str(found)
        assert text.splitlines() == text.split("\n")
        assert len(text.splitlines()) == 4
        assert all(line.isprintable() and len(line) < 500 for line in text.splitlines())


DTYPES: dict[str, Any] = {
    "bool": np.array([True, False]),
    "int8": np.array([1, -1], np.int8),
    "uint64": np.array([2**64 - 1, 0], np.uint64),
    "complex64": np.array([1 + 1j, NAN], np.complex64),
    "bfloat16": np.array([1, 2], ml_dtypes.bfloat16),
    "float8": np.array([1, 2], ml_dtypes.float8_e4m3fn),
    "float8 of nan": np.array([1, NAN], ml_dtypes.float8_e5m2),
    "float4": np.array([1, 0.5], ml_dtypes.float4_e2m1fn),
    "int4": np.array([1, -2], ml_dtypes.int4),
    "number": np.array(1.5),
    "text": np.array(["x", "y"]),
    "dates": np.array(["2020-01-01"], "datetime64[s]"),
    "structures": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "float128": np.array([1.0, 2.0], np.longdouble),
    "nothing": np.zeros((0, 3)),
}


def with_first_bit_flipped(value: Any) -> Any:
    data = bytearray(value.tobytes())
    if data:
        data[0] ^= 1
    return np.frombuffer(bytes(data), value.dtype).reshape(value.shape)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("tolerance", [{}, {"rtol": 0.0}, {"ulps": 0}])
@pytest.mark.slow
def test_a_flipped_bit_of_any_dtype_is_found(tmp_path: Path, tolerance: Any) -> None:
    a = write(tmp_path / "a", **{f"{name}@1": value for name, value in DTYPES.items()})
    b = write(tmp_path / "b", **{f"{name}@1": with_first_bit_flipped(value) for name, value in DTYPES.items()})
    found = tensortrial.compare(a, b, **tolerance)
    assert {(each.name, each.step) for each in found.differences} == {(name, 1) for name in DTYPES if name != "nothing"}
    assert not [each for each in found.differences if "its numbers" in str(each)]
    assert tensortrial.compare(a, a, **tolerance).same


def test_a_zero_of_another_sign_differs_in_its_bits_only(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a", **{"v@1": np.zeros(2)}), write(tmp_path / "b", **{"v@1": -np.zeros(2)})
    assert str(tensortrial.compare(a, b).differences[0]) == "its bits differ, but not its numbers"


def test_a_number_that_differs_later_has_its_distance(tmp_path: Path) -> None:
    a, b = (write(tmp_path / str(loss), **{"loss@0": loss, "val/loss@1": loss}) for loss in (1.0, 1.5))
    assert [each.max_abs for each in tensortrial.compare(a, b).differences] == [0.5, 0.5]


def test_nothing_that_was_compared_is_not_the_same(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a"), write(tmp_path / "b")
    for options in ({"regex": "wieght"}, {"mode": "EVAL"}):
        found = tensortrial.compare(a, b, **options)
        assert not found.same
        assert found.sentence.startswith("there is nothing to compare")


def test_rows_are_the_same_in_pandas_and_arrow(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    found = tensortrial.compare(write(tmp_path / "a"), write(tmp_path / "b", **{"loss@1": 0.75}))
    assert found.df()["name"].tolist() == ["loss"]
    assert isinstance(found.to_arrow_table(), pa.Table)


def test_runs_that_are_compacted_meanwhile_are_compared_to_the_end(tmp_path: Path) -> None:
    for name in "ab":
        # Few files a folder are not compacted at the end of a run.
        compacted_runs.write(tmp_path / name, 20, steps_per_directory=4)
    attempts = []

    def compact_once() -> None:
        attempts.append(len(attempts))
        for name in "ab" if len(attempts) == 1 else "":
            compact(tmp_path / name, delete_older_than=0)

    found = tensortrial.compare(tmp_path / "a", tmp_path / "b", regex=Meanwhile(compact_once))
    assert found.sentence.startswith("no difference: 33 saved tensors")
    assert len(attempts) == 2
