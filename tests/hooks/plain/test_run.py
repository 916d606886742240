"""The run of a program without a framework."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from tensortrial import Run, create_trial
from tensortrial.errors import UnsupportedValue
from tensortrial.mode import modes


def values(out: str, name: str) -> dict[int, float]:
    tensor = create_trial(out).tensor(name)
    return {step: float(tensor.value(step)) for step in tensor.steps()}


def test_numbers_and_arrays_are_saved_at_their_steps(out: str) -> None:
    with Run(out, metadata={"lr": 0.1}) as run:
        for step in (0, 10, 20):
            run.log({"loss": 1 / (step + 1), "accuracy": np.float32(0.5)}, step)
            run.save_tensor("weights", np.full((2, 3), step), step=step)
        run.save_tensor("late", np.arange(100_000), step=10)
    trial = create_trial(out)
    assert trial.steps() == [0, 10, 20]
    assert values(out, "loss") == {0: 1.0, 10: 1 / 11, 20: 1 / 21}
    assert trial.tensor("weights").value(20).tolist() == [[20] * 3] * 2
    assert trial.tensor("late").value(10)[-1] == 99_999
    assert trial.info.framework == "none"
    assert trial.info.metadata["lr"] == 0.1
    assert trial.info.versions["numpy"] == np.__version__


@pytest.mark.filterwarnings("ignore:Warning. converting a masked element to nan")
def test_a_masked_number_is_saved_as_nan(out: str) -> None:
    with Run(out) as run:
        run.log({"of none": np.ma.mean(np.ma.masked_all(3)), "masked": np.ma.array(1.0, mask=True)})
    trial = create_trial(out)
    assert all(np.isnan(trial.tensor(name).value(0)) for name in ("of none", "masked"))


def test_a_container_of_one_number_is_saved_as_that_number_without_a_warning(out: str) -> None:
    pandas = pytest.importorskip("pandas")
    with Run(out) as run:
        run.log({"series": pandas.Series([1.5]), "matrix": np.array([[2.5]])})
    trial = create_trial(out)
    assert [trial.tensor(name).value(0).item() for name in ("series", "matrix")] == [1.5, 2.5]


def test_small_arrays_that_are_saved_at_two_steps_in_turns_are_kept(out: str) -> None:
    saved = {(f"x{number}", number % 2): np.arange(number + 2.0) for number in range(8)}
    with Run(out) as run:
        run.save_tensor("first", np.arange(2), step=0)
        for (name, step), array in saved.items():
            run.save_tensor(name, array, step=step)
    trial = create_trial(out)
    for (name, step), array in saved.items():
        np.testing.assert_array_equal(trial.tensor(name).value(step), array)


def test_an_array_that_grows_because_its_fields_overlap_is_kept(out: str) -> None:
    dtype = np.dtype({"names": list("abcdefgh"), "formats": ["V1000"] * 8, "offsets": [0] * 8, "itemsize": 1000})
    array = np.frombuffer(np.random.default_rng(1).bytes(1_000_000), dtype)
    with Run(out) as run:
        run.save_tensor("overlapping", array, step=0)
    assert create_trial(out).tensor("overlapping").value(0)["h"].tobytes() == array.tobytes()


def test_a_name_that_the_step_has_begins_the_next_one(out: str) -> None:
    with Run(out) as run:
        for value in range(5):
            run.save_scalar("x", value)
        for value in range(2):
            run.log({"y": value, "z": -value})
            run.save_tensor("w", [value, value])
    assert values(out, "x") == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}
    assert values(out, "y") == {4: 0, 5: 1}
    assert create_trial(out).tensor("w").steps() == [4, 5]


def test_tensors_that_are_saved_together_are_at_one_step(out: str) -> None:
    with Run(out) as run:
        run.save_tensors({"a": [1.0, 2.0], "b": np.arange(1_000_000)})
        run.save_tensors({"c": np.ones(2), "b": np.zeros(3)})
        run.save_tensor("a", [3.0, 4.0])
        run.save_tensors({})
        run.save_tensors({"a": [5.0, 6.0]}, step=0)
    trial = create_trial(out)
    steps = {name: trial.tensor(name).steps() for name in "abc"}
    assert steps == {"a": [0, 1], "b": [0, 1], "c": [1]}
    assert trial.tensor("a").value(0).tolist() == [5.0, 6.0]
    assert trial.tensor("b").value(0)[-1] == 999_999


@pytest.mark.parametrize("name", [7, ("a", "b"), "\ud800"])
def test_a_name_that_cannot_be_saved_keeps_no_other_from_it(
    out: str, monkeypatch: pytest.MonkeyPatch, name: Any
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    with Run(out) as run:
        run.save_tensors({"first": np.ones(2), name: np.ones(2), "last": np.ones(2)})
    trial = create_trial(out)
    assert trial.tensor_names() == ["first", "last"]
    assert trial.steps() == [0]


def test_inside_a_step_the_last_value_counts(out: str) -> None:
    with Run(out) as run:
        for step in (5, 6):
            with run.step(step, mode=modes.TRAIN):
                run.log({"x": 0.0})
                run.log({"x": step})
        run.begin_step(mode="EVAL")
        run.log({"x": 7.0})
        run.end_step()
    tensor = create_trial(out).tensor("x")
    assert [float(tensor.value(step, modes.TRAIN)) for step in tensor.steps(modes.TRAIN)] == [5.0, 6.0]
    assert tensor.steps(modes.EVAL) == [0]


def test_what_cannot_be_saved_is_logged_and_the_rest_is_saved(
    out: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    with Run(out) as run:
        run.log({"bad": "high", "x": float("nan"), "nested": {"y": 1}, 5: 1.0}, step=0)  # type: ignore[dict-item]
        run.save_tensor("objects", object(), step=0)
        run.save_tensor("x", [1.0], step="a")  # type: ignore[arg-type]
    assert create_trial(out).tensor_names() == ["x"]
    assert len(caplog.messages) == 5


def test_steps_of_a_training_before_its_mode_was_set_are_named(out: str, caplog: pytest.LogCaptureFixture) -> None:
    with Run(out) as run:
        for mode in (None, None, "EVAL", "TRAIN", "EVAL", "TRAIN"):
            if mode:
                run.set_mode(mode)
            with run.step():
                run.log({"loss": 1.0})
    (message,) = caplog.messages
    assert message.startswith("the steps before this set_mode are in mode GLOBAL, and those from now on in TRAIN")


def test_numbers_that_are_saved_once_before_a_training_are_not_warned_of(
    out: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Run(out) as run:
        run.log({"parameters": 5})
        run.set_mode("TRAIN")
        run.log({"loss": 1.0})
    assert not caplog.messages


def test_tensors_that_are_saved_together_join_the_collections_that_an_iterator_names(out: str) -> None:
    with Run(out) as run:
        run.save_tensors({"a": np.ones(2), "b": np.ones(3)}, (name for name in ["mine"]))
    assert create_trial(out).tensor_names(collection="mine") == ["a", "b"]


def test_a_training_whose_mode_is_set_first_is_not_warned(out: str, caplog: pytest.LogCaptureFixture) -> None:
    with Run(out) as run:
        for mode in ("TRAIN", "EVAL", "TRAIN", "GLOBAL", "TRAIN"):
            run.set_mode(mode)
            with run.step():
                run.log({"loss": 1.0})
    assert not caplog.messages


def test_an_exception_in_the_program_passes_and_the_run_is_closed(out: str) -> None:
    def program() -> None:
        with Run(out) as run:
            run.log({"x": 1.0})
            raise KeyError

    with pytest.raises(KeyError):
        program()
    assert create_trial(out).loaded_all_steps
    assert values(out, "x") == {0: 1.0}


def test_an_empty_run_is_no_run(out: str) -> None:
    with Run(out):
        pass
    assert not Path(out).exists()


def test_a_run_needs_numpy_and_no_framework(out: str) -> None:
    program = (
        "import sys, tensortrial\n"
        f"with tensortrial.Run({out!r}) as run: run.log({{'x': 1.0}}, step=0)\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"duckdb", "torch", "tensorflow", "keras", "xgboost", "jax", "mxnet"}.isdisjoint(loaded)
    assert json.loads((Path(out) / "run.json").read_bytes())["framework"] == "none"
    assert tensortrial.create_trial(out).steps() == [0]


def test_no_text_file_is_opened_without_its_encoding(tmp_path: Path) -> None:
    """As Python warns of with -X warn_default_encoding, which a program may turn into errors."""
    program = """
import sys, tensortrial
run = tensortrial.Run(sys.argv[1], resume=True, system_metrics=True)
run.log({"loss": 1.0}, step=0)
run.close()
print(tensortrial.create_trial(sys.argv[1]).sql("select value from scalars").fetchall())
"""
    options = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
    environment = {**os.environ, "TENSORTRIAL_ENVIRONMENT": "1"}
    command = [sys.executable, *options, "-c", program, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "[(1.0,)]\n"
    assert "EncodingWarning" not in done.stderr


@pytest.mark.parametrize("mode", ["P", "CMYK", "YCbCr", "HSV", "LAB", "RGBX", "RGBA", "RGB"])
def test_an_image_of_pil_is_saved_in_its_colors_whatever_its_mode(out: str, mode: str) -> None:
    image = pytest.importorskip("PIL.Image").new("RGB", (5, 4), (204, 51, 0)).convert(mode)
    with Run(out) as run:
        run.save_image("sample", image, step=0)
    saved = create_trial(out).tensor("sample").value(0)
    assert saved.shape[:2] == (4, 5)
    assert np.abs(saved[..., :3] - np.array([204.0, 51.0, 0.0])).max() <= 5


def test_an_image_that_pil_cannot_convert_is_refused(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pytest.importorskip("PIL.Image")

    def refuse(self: Any, mode: str) -> None:
        raise ValueError("conversion from LAB to RGB not supported")

    monkeypatch.setattr(images.Image, "convert", refuse)
    with Run(out) as run:
        with pytest.raises(UnsupportedValue, match="must be gray, RGB or RGBA, got LAB: conversion from LAB"):
            run.save_image("lab", images.new("LAB", (5, 4)), step=0)
        with pytest.raises(UnsupportedValue, match="got uint16; cast it to uint8"):
            run.save_image("deep", images.new("I;16", (5, 4)), step=0)
        run.save_image("bits", images.new("1", (5, 4), 1), step=0)
    assert create_trial(out).tensor("bits").value(0).tolist() == [[[255]] * 5] * 4
