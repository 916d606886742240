"""The heat map of many tensors: what is in its cells, and what is marked."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.runs import EVAL, TRAIN, Job
from tensortrial.errors import ConfigurationError

pyplot = pytest.importorskip("matplotlib.pyplot")


def image(ax: Any, gid: str = "values") -> np.ma.MaskedArray:
    """Return the cells of an image of a plot, masked where it is transparent."""
    (found,) = [each for each in ax.images if each.get_gid() == gid]
    return np.ma.asarray(found.get_array())


def row_labels(ax: Any) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def legend_of(ax: Any) -> list[str]:
    legend = ax.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_a_heat_map_has_a_row_a_tensor_and_a_column_a_step(run: Path) -> None:
    ax = tensortrial.create_trial(run).plot.heatmap("gradient/first", "l2", mode=TRAIN, own_past=False)
    cells = image(ax)
    assert cells.shape == (1, 12)
    expected = np.array([np.sqrt(6) * 10 ** (step / 2) for step in range(12)])
    np.testing.assert_allclose(np.delete(cells[0], 6), np.delete(expected, 6))
    assert ax.get_title(loc="left") == "run: l2 of gradient/first"
    assert ax.get_xlabel() == "step of TRAIN"
    assert ax.get_xlim() == (0, 12)
    assert row_labels(ax) == ["gradient/first"]


def test_a_step_that_was_not_saved_is_a_grey_column(run: Path) -> None:
    ax = tensortrial.create_trial(run).plot.heatmap("gradient/first", "l2", mode=TRAIN, own_past=False)
    np.testing.assert_array_equal(image(ax).mask[0], [step == 6 for step in range(12)])
    assert legend_of(ax) == ["not saved"]


def test_nan_and_zero_have_colors_of_their_own_on_a_logarithmic_scale(run: Path) -> None:
    ax = tensortrial.create_trial(run).plot.heatmap("gradient/last", "l2", mode=TRAIN, own_past=False)
    assert type(ax.images[0].norm).__name__ == "LogNorm"
    assert np.flatnonzero(~image(ax, "not finite cells").mask[0]).tolist() == [9]
    assert np.flatnonzero(~image(ax, "zero").mask[0]).tolist() == [0]
    assert legend_of(ax) == ["zero", "NaN or infinite", "not saved"]
    (marks,) = [line for line in ax.lines if line.get_gid() == "not finite"]
    assert marks.get_xdata().tolist() == [9.5]


def test_rows_are_in_the_order_of_execution(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tensortrial.hooks.pytorch import Hook

    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    reductions = tensortrial.ReductionConfig(reductions=["l2"])
    hook = Hook(tmp_path / "run", include_collections=["gradients"], reduction_config=reductions)
    hook.register_module(net)
    for _ in range(2):
        net(torch.ones(5, 4)).sum().backward()
    hook.close()
    ax = tensortrial.create_trial(tmp_path / "run").plot.heatmap("gradients", own_past=False)
    # Backpropagation reaches the last layer first.
    assert [label.partition("_")[2][0] for label in row_labels(ax)] == ["2", "2", "0", "0"]


def test_one_step_of_many_is_visible_where_a_column_is_several_steps(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(3000):
            value = -50.0 if step == 1234 else np.inf if step == 2000 else 1.0
            job.step({"a": np.full(1, value)}, raw=False, statistics=("mean",))
    ax = tensortrial.create_trial(tmp_path / "run").plot.heatmap("a", "mean", own_past=False)
    cells = image(ax)
    assert cells.shape[1] < 1000
    assert cells.min() == -50
    assert np.count_nonzero(~image(ax, "not finite cells").mask) == 1
    assert "a column is up to" in ax.get_xlabel()
    # Steps that are far apart need no columns in common.
    assert image(
        tensortrial.create_trial(tmp_path / "run").plot.heatmap("a", "mean", steps=(0, 700), own_past=False)
    ).shape == (1, 700)


def test_several_workers_share_a_cell_unless_one_is_chosen(tmp_path: Path) -> None:
    jobs = [Job(tmp_path / "run", f"worker_{number}", 2) for number in range(2)]
    for number, job in enumerate(jobs):
        job.step({"a": np.full(1, number + 1.0)}, statistics=("l2",))
        job.close()
    trial = tensortrial.create_trial(tmp_path / "run")
    assert image(trial.plot.heatmap("a", own_past=False)).tolist() == [[2.0]]
    assert image(trial.plot.heatmap("a", worker="worker_0", own_past=False)).tolist() == [[1.0]]
    with pytest.raises(ConfigurationError, match="unknown worker 'nobody'; the workers are: worker_0, worker_1"):
        trial.plot.heatmap("a", worker="nobody", own_past=False)


def test_a_heat_map_is_drawn_into_axes_that_are_passed(run: Path) -> None:
    figure, (left, right) = pyplot.subplots(1, 2)
    trial = tensortrial.create_trial(run)
    assert trial.plot.heatmap("gradients", ax=left, own_past=False) is left
    assert trial.plot.scalars("loss", ax=right) is right
    figure.canvas.draw()
    plots = (trial.plot.heatmap, trial.plot.scalars, trial.plot.histograms, trial.plot.tensor)
    for plot, wrong in product(plots, (3, figure, [left, right])):
        with pytest.raises(ConfigurationError, match="ax must be one Axes of matplotlib, or None"):
            plot("gradient/first", ax=wrong)


def test_a_selection_without_values_says_what_is_missing(run: Path) -> None:
    trial = tensortrial.create_trial(run)
    for arguments, options, sentence in [
        (("gradint/*",), {}, "no tensor or collection matches 'gradint/\\*'"),
        (("gradients/",), {}, "did you mean 'gradient/"),
        (("gradients", "l2"), {"mode": EVAL}, "none of 3 matching tensors has a saved l2 in mode EVAL"),
        (("gradients", "l2"), {"steps": (50, None)}, "at steps 50 <= step < …"),
        (("gradients", "l2"), {"steps": (5, 5)}, "is empty"),
        (("gradients", "l2"), {"steps": 5}, "steps must be a pair \\(first, end\\), got 5"),
        (("gradients", "l3"), {}, "unknown statistic 'l3'"),
        (("gradients", "l2"), {"mode": "TRIAN"}, "unknown mode 'TRIAN'"),
        *((names, {}, "names must be a name, a collection") for names in ([""], [[]], [5], [["loss", 5]])),
    ]:
        with pytest.raises(ConfigurationError, match=sentence):
            trial.plot.heatmap(*arguments, **options, own_past=False)


def test_every_tensor_of_a_run_with_hostile_names_can_be_drawn(run: Path) -> None:
    trial = tensortrial.create_trial(run, name="_$x<b>")
    (hostile,) = [name for name in trial if "frac" in name]
    for ax in (
        trial.plot.heatmap(None, "value", own_past=False),
        trial.plot.heatmap([hostile, "loss"], "value", own_past=False),
        trial.plot.scalars("*", "l2"),
        trial.plot.tensor(hostile),
        trial.plot.histograms(hostile),
    ):
        ax.figure.canvas.draw()
    assert "\\x1b" in trial.plot.tensor(hostile).get_title(loc="left")


def test_a_run_of_nothing_but_nan_is_drawn(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"a": np.full(2, np.nan), "loss": float("nan")}, statistics=("l2",), histogram=True)
    trial = tensortrial.create_trial(tmp_path / "run")
    for ax in (
        trial.plot.heatmap("a", own_past=False),
        trial.plot.scalars("loss"),
        trial.plot.histograms("a"),
        trial.plot.tensor("a"),
    ):
        ax.figure.canvas.draw()


def test_values_over_hundreds_of_decades_have_a_scale(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(6):
            job.step({"loss": 10.0 ** (100 * step - 300)})
    ax = tensortrial.create_trial(tmp_path / "run").plot.heatmap("loss", "value", own_past=False)
    ax.figure.canvas.draw()


def test_a_run_that_has_saved_nothing_says_so(tmp_path: Path) -> None:
    with Job(tmp_path / "run"), pytest.raises(ConfigurationError, match="no tensor was saved yet"):
        tensortrial.create_trial(tmp_path / "run").plot.heatmap(own_past=False)


MEANS: dict[str, Any] = {"raw": False, "statistics": ("mean",)}


def test_the_colors_are_the_distance_from_the_own_past(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(40):
            usual = 1 + 0.1 * (step % 3)
            job.step({"calm": np.full(4, usual), "leaves": np.full(4, usual * (9 if step == 30 else 1))}, **MEANS)
    ax = tensortrial.create_trial(tmp_path / "run").plot.heatmap(None, "mean")
    cells = image(ax)
    calm, leaves = (cells[row_labels(ax).index(name)] for name in ("calm", "leaves"))
    assert not calm.any()  # less than three deviations are neutral
    assert np.flatnonzero(leaves).tolist() == [30]
    assert leaves[30] > 12
    assert ax.figure.axes[1].get_ylabel() == "deviations from its own past"


def test_what_was_saved_raw_is_drawn_with_computed_statistics(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(6):
            plan = {"raw": False, "statistics": ("l2",)}
            values = {f"raw{n}": np.full(4, float(step + n)) for n in range(14)} | {"text": np.array(["a", "b"])}
            job.step({**values, "saved": (plan, np.full(4, 2.0))})
    trial = tensortrial.create_trial(tmp_path / "run")
    for _ in range(2):  # the second time from what was computed
        ax = trial.plot.heatmap(own_past=False)
        assert len(row_labels(ax)) == 15
        cells = dict(zip(row_labels(ax), image(ax).tolist(), strict=True))
        assert cells["raw3"] == [2.0 * (step + 3) for step in range(6)]
        assert cells["saved"] == [4.0] * 6
    (line,) = trial.plot.scalars("raw3", "l2").lines
    assert line.get_ydata().tolist() == [2.0 * (step + 3) for step in range(6)]


def test_a_value_after_few_others_must_be_further_away_to_have_a_color(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(60):
            value = 10.75 if step in (5, 55) else 10 + step % 5 / 10
            run.save_tensor("a", np.full(3, value), step=step)
    (scores,) = image(tensortrial.create_trial(tmp_path / "run").plot.heatmap("a", "mean"))
    assert np.flatnonzero(scores).tolist() == [55]
