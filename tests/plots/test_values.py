"""Histograms over steps, and raw values."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tensortrial
from support.runs import TRAIN, Job
from tensortrial.errors import ConfigurationError, StepUnavailable, TensorUnavailable

pyplot = pytest.importorskip("matplotlib.pyplot")


def area(ridge: Any) -> float:
    """Return the area of a ridge whose height was the density itself."""
    points = ridge.get_paths()[0].vertices
    return float(np.ptp(points[:, 1]))


def ticks(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


@pytest.fixture
def trial(tmp_path: Path) -> tensortrial.Trial:
    """A run whose tensor `w` widens from step to step, and has a NaN at the last."""
    generator = np.random.default_rng(0)
    with Job(tmp_path / "run") as job:
        for step in range(40):
            value = generator.normal(0, 1 + step, (3, 4, 50)).astype(np.float32)
            value[0, 0, 0] = np.nan if step == 39 else 0
            job.step({"w": value, "one": np.arange(3.0), "text": np.array(["a", "b"]), "empty": np.zeros((0, 2))})
            job.step({"w": value}, TRAIN, raw=False, statistics=("l2", "nan_count"), histogram=True)
    return tensortrial.create_trial(tmp_path / "run")


@pytest.mark.parametrize("mode", ["GLOBAL", "TRAIN"])
def test_each_step_is_a_ridge(trial: tensortrial.Trial, mode: str) -> None:
    ax = trial.plot.histograms("w", mode=mode)
    assert len(ax.collections) == 32
    assert ticks(ax)[0] == ("1" if mode == "GLOBAL" else "0")
    assert "32 of 40 steps" in ax.get_title(loc="left")
    first, last = (each.get_paths()[0].vertices[:, 0] for each in (ax.collections[0], ax.collections[-1]))
    assert np.ptp(last) > 20 * np.ptp(first)
    assert [each.get_gid() for each in ax.lines].count("not finite") == 1


def test_values_that_are_nearly_equal_or_very_small_are_drawn(tmp_path: Path) -> None:
    values = [[1 / 3, 1 - 2 / 3], [1.764e18] * 2, [1e17, 1e17 + 16], [1.7e308] * 2, [5e-324, 1e-323]]
    with Job(tmp_path / "run") as job:
        job.step({str(number): np.array(value) for number, value in enumerate(values)})
    trial = tensortrial.create_trial(tmp_path / "run")
    for number in range(len(values)):
        ax = trial.plot.histograms(str(number))
        ax.figure.canvas.draw()
        pyplot.close(ax.figure)
        assert area(ax.collections[0]) > 1


def test_raw_values_make_histograms_where_none_was_saved(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for value in ([1.0, 1.0, 2.0], [np.inf] * 3, [-1.7e308, 0, 1.7e308], [5.0] * 3):
            job.step({"w": np.array(value)})
    ax = tensortrial.create_trial(tmp_path / "run").plot.histograms("w")
    ax.figure.canvas.draw()
    assert ticks(ax) == ["0", "1", "2", "3"]
    assert len(ax.collections) == 3  # none of infinities
    assert [each.get_gid() for each in ax.lines].count("not finite") == 1


def test_a_tensor_without_a_distribution_says_so(trial: tensortrial.Trial, run: Path) -> None:
    with pytest.raises(ConfigurationError, match="'text' has neither histograms nor raw values of numbers"):
        trial.plot.histograms("text")
    with pytest.raises(TensorUnavailable, match="'x'"):
        trial.plot.histograms("x")


def test_a_matrix_is_an_image_of_the_first_dimension_and_the_others(trial: tensortrial.Trial) -> None:
    ax = trial.plot.tensor("w", 78)
    shown = ax.images[0].get_array()
    value = trial["w"].value(78).reshape(3, 200)
    np.testing.assert_allclose(np.ma.filled(shown, 9), np.nan_to_num(value, nan=9))
    assert shown.mask[0, 0]
    assert not ax.images[1].get_array().mask[0, 0]
    assert ax.images[0].norm.vmin == -ax.images[0].norm.vmax
    assert ax.get_title(loc="left") == "w\nglobal step 78, float32 [3, 4, 50]"
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("dimension 0 (3)", "dimensions 1 to 2 (4 × 50)")


def test_a_vector_is_a_line_of_the_last_step(trial: tensortrial.Trial) -> None:
    ax = trial.plot.tensor("one")
    (line,) = [each for each in ax.patches if each.get_gid() == "values"]
    assert cast("Any", line).get_data().values.tolist() == [0, 1, 2]
    assert "global step 78" in ax.get_title(loc="left")


def test_the_largest_element_is_visible_in_an_image_of_more_elements_than_pixels(tmp_path: Path) -> None:
    value = np.zeros((1500, 2500), np.float32)
    value[1111, 2222] = -7
    with Job(tmp_path / "run") as job:
        job.step({"w": value, "long": value.reshape(-1)})
    trial = tensortrial.create_trial(tmp_path / "run")
    ax = trial.plot.tensor("w")
    assert ax.images[0].get_array().min() == -7
    assert ax.images[0].get_array().size < 500_000
    assert "shows the largest magnitude" in ax.get_xlabel()
    assert trial.plot.tensor("long").collections[0].get_paths()[0].vertices[:, 1].min() == -7


def test_a_value_that_cannot_be_drawn_says_why(trial: tensortrial.Trial, run: Path) -> None:
    with pytest.raises(ConfigurationError, match="'text' has elements of dtype <U1"):
        trial.plot.tensor("text")
    with pytest.raises(ConfigurationError, match="'empty' has no elements at step 78"):
        trial.plot.tensor("empty")
    with pytest.raises(StepUnavailable):
        trial.plot.tensor("w", 1000)
    with pytest.raises(ConfigurationError, match="no raw value of 'w' was saved"):
        trial.plot.tensor("w", mode="TRAIN")
    for worker in ("nobody", 5):
        with pytest.raises(ConfigurationError, match=f"unknown worker {worker!r}; the workers are: worker_0"):
            trial.plot.tensor("w", worker=worker)
