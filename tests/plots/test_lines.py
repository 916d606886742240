"""Lines over steps, of one run and of several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support import warm
from support.runs import EVAL, TRAIN, Job
from tensortrial.errors import ConfigurationError

pyplot = pytest.importorskip("matplotlib.pyplot")


def line(ax: Any, *key: str) -> Any:
    """Return the line of a run, tensor and mode."""
    (found,) = [each for each in ax.lines if each.get_gid() == "\n".join(key)]
    return found


def drawn(ax: Any) -> set[str]:
    """Return the names of the tensors with a line."""
    return {each.get_gid().split("\n")[1] for each in ax.lines if each.get_gid()}


def labels(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_each_mode_of_a_scalar_is_a_line_over_the_global_step(run: Path) -> None:
    ax = tensortrial.create_trial(run).plot.scalars("loss")
    assert line(ax, "", "loss", "EVAL").get_xdata().tolist() == [12, 13]
    assert line(ax, "", "loss", "EVAL").get_ydata().tolist() == [0.5, 0.5]
    assert labels(ax) == ["loss (TRAIN)", "loss (EVAL)", "not saved"]
    assert ax.get_xlabel() == "global step"
    assert ax.get_yscale() == "log"


def test_names_and_patterns_are_not_warned_of_as_unknown_collections(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial = tensortrial.create_trial(run)
    lines = [len(trial.plot.scalars(names).lines) for names in ("loss", "lo*", ["loss", "losses"], "all")]
    assert all(lines)
    assert not caplog.messages


def test_scalars_without_names_are_the_losses(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path / "run") as logged:
        for step in range(3):
            logged.log({"loss": 1.0 / (step + 1), "val_loss": 1.0, "tokens_per_second": 1e5, "lr": 0.1}, step=step)
    ax = tensortrial.create_trial(tmp_path / "run").plot.scalars()
    assert labels(ax) == ["loss", "val_loss"]
    assert ax.get_title(loc="left") == "run: losses"
    with tensortrial.Run(tmp_path / "other") as logged:
        logged.log({"score": 1.0, "lr": 0.1}, step=0)
    assert labels(tensortrial.create_trial(tmp_path / "other").plot.scalars()) == ["lr", "score"]


def test_scalars_without_names_are_all_if_the_losses_have_no_numbers_there(tmp_path: Path) -> None:
    """A loss may be a vector, or be saved in another mode."""
    losses = {"collections": ("losses",)}
    with Job(tmp_path / "run") as job:
        for step in range(4):
            job.step({"loss": 1.0 / (step + 1)}, TRAIN, **losses)
            job.step({"accuracy": step / 4}, EVAL)
    with tensortrial.create_trial(tmp_path / "run") as trial:
        assert drawn(trial.plot.scalars()) == {"loss"}
        assert drawn(trial.plot.scalars(mode=EVAL)) == {"accuracy"}
    with Job(tmp_path / "vectors") as job:
        job.step({"loss_of_each": np.ones(3)}, TRAIN, **losses)
        job.step({"accuracy": 0.5}, TRAIN)
    with tensortrial.open_runs(tmp_path / "vectors") as runs:
        assert drawn(runs.plot.scalars()) == {"accuracy"}


def test_a_line_is_broken_where_a_step_is_missing(run: Path) -> None:
    ax = tensortrial.create_trial(run).plot.scalars("loss", mode=TRAIN)
    values = dict(zip(*line(ax, "", "loss", "TRAIN").get_data(), strict=True))
    assert np.flatnonzero(np.isnan(list(values.values()))).tolist() == [6]
    assert values[7] == pytest.approx(10**-3.5)
    assert [each.get_gid() for each in ax.patches] == ["not saved"]


def test_steps_of_another_mode_are_no_gap(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(40):
            job.step({"loss": 1.0}, EVAL if step in (20, 21) else TRAIN)
    ax = tensortrial.create_trial(tmp_path / "run").plot.scalars("loss")
    assert len(line(ax, "", "loss", "TRAIN").get_xdata()) == 38
    assert not ax.patches


def test_nan_is_marked_at_its_step(run: Path) -> None:
    ax = tensortrial.create_trial(run).plot.scalars("gradient/last", "l2", mode=TRAIN)
    (marks,) = [each for each in ax.lines if each.get_gid() == "not finite"]
    assert marks.get_xdata().tolist() == [9]
    assert "NaN or infinite" in labels(ax)


def test_a_spike_is_inside_the_band_where_a_point_is_several_steps(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(4000):
            job.step({"loss": 99.0 if step == 1717 else 1.0})
    ax = tensortrial.create_trial(tmp_path / "run").plot.scalars("loss")
    (band,) = ax.collections
    assert band.get_paths()[0].vertices[:, 1].max() == 99
    assert len(ax.lines[0].get_xdata()) < 1000


def test_a_line_of_few_steps_has_each_of_them_next_to_one_of_many(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(200):
            job.step({"loss": 1.0, **({"rare": 1.0} if step % 25 < 2 else {})})
    ax = pyplot.figure(figsize=(0.8, 1)).add_subplot()
    tensortrial.create_trial(tmp_path / "run").plot.scalars(["loss", "rare"], ax=ax)
    assert len(line(ax, "", "rare", "GLOBAL").get_xdata()) == 16
    assert len(line(ax, "", "loss", "GLOBAL").get_xdata()) == 50


def test_smoothing_is_a_mean_of_the_past_and_leaves_the_values_visible(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for value in (1.0, 2.0, float("nan"), 4.0):
            job.step({"loss": value})
    trial = tensortrial.create_trial(tmp_path / "run")
    raw, smooth, _ = trial.plot.scalars("loss", smoothing=0.5).lines
    np.testing.assert_array_equal(raw.get_ydata(), [1, 2, np.nan, 4])
    np.testing.assert_allclose(smooth.get_ydata(), [1, 2.5 / 1.5, np.nan, (0.25 + 1 + 4) / 1.75])
    for wrong in (1, "0.6"):
        with pytest.raises(ConfigurationError, match=f"smoothing must be at least 0 and below 1, got {wrong!r}"):
            trial.plot.scalars("loss", smoothing=wrong)


def test_each_run_is_a_color(tmp_path: Path) -> None:
    for number in range(3):
        with Job(tmp_path / f"_lr={number}") as job:
            for step in range(3):
                job.step({"loss" if number < 2 else "other": float(number + step)})
    with tensortrial.open_runs(tmp_path) as runs:
        ax = runs.plot.scalars("loss")
    assert labels(ax) == ["_lr=0", "_lr=1"]
    assert line(ax, "_lr=1", "loss", "GLOBAL").get_ydata().tolist() == [1, 2, 3]
    assert len({each.get_color() for each in ax.lines}) == 2
    assert ax.get_title(loc="left") == "2 runs: loss"


def test_a_legend_of_many_lines_is_cut(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for _ in range(2):
            job.step({f"loss_{number}": float(number) for number in range(40)})
    ax = tensortrial.create_trial(tmp_path / "run").plot.scalars("loss_*")
    highest, lowest = [f"loss_{n}" for n in (39, 38, 37, 36, 35)], [f"loss_{n}" for n in (4, 3, 2, 1, 0)]
    assert labels(ax) == [*highest, "30 between", *lowest]
    assert len({each.get_color() for each in ax.lines}) == 40


def test_thirty_runs_leave_room_for_their_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(30):
        with Job(tmp_path / f"a-run-with-a-long-name-{number:02}") as job:
            for step in range(3):
                job.step({"loss": float(number + step), "accuracy": 0.5})
    with tensortrial.open_runs(tmp_path) as runs:
        ax = runs.plot.scalars("loss")
        both = runs.plot.scalars(["loss", "accuracy"])
    ax.figure.canvas.draw()
    assert ax.get_position().height > 0.7
    assert len(labels(ax)) == 11
    assert labels(both)[11:] == ["accuracy", "loss"]  # which style each has
    assert not caplog.records


def test_without_matplotlib_a_plot_names_the_extra(run: Path) -> None:
    program = """if True:
        import sys
        sys.modules["matplotlib"] = None
        import tensortrial
        try:
            tensortrial.create_trial(sys.argv[1]).plot
        except ImportError as exc:
            print(exc)
    """
    done = warm.run(["-c", program, run], check=True)
    assert done.stdout == "a plot needs matplotlib, which is not installed: pip install 'tensortrial[plot]'\n"


def test_opening_a_run_does_not_import_matplotlib(run: Path) -> None:
    program = (
        "import sys, tensortrial; tensortrial.create_trial(sys.argv[1]).steps(); print('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(run)], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_values_near_the_largest_float_are_drawn(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for value in (-1.7e308, 1.7e308, 0.0):
            job.step({"loss": value})
    trial = tensortrial.create_trial(tmp_path / "run")
    trial.plot.scalars("loss").figure.canvas.draw()
    trial.plot.heatmap("loss", "value").figure.canvas.draw()
