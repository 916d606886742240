"""Statistics of tensors that were saved as raw values only: on the page, and in frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.limits import set_limits
from support.pages import fetch
from tensortrial.pages import Page, page

NAMES = [f"w{number:02}" for number in range(14)]
STEPS = range(0, 40, 2)


def values(name: str, step: int) -> Any:
    return np.random.default_rng((step, NAMES.index(name))).standard_normal((4, 3)) * (step + 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw") / "run"
    with tensortrial.Run(folder) as run:
        for step in STEPS:
            with run.step(step, mode="TRAIN"):
                run.log({"loss": 1.0 / (step + 1)})
                run.save_tensor("texts", np.array(["a", "b"]))
                for name in NAMES:
                    run.save_tensor(name, values(name, step))
    return folder


def answer(served: Page, path: str, **given: Any) -> Any:
    return fetch(served, path, **{"run": "run", "mode": "TRAIN", **given})


@pytest.mark.parametrize("mode", ["TRAIN", "GLOBAL"])
def test_the_heat_map_shows_all_tensors_that_were_saved_raw(served: Page, mode: str) -> None:
    for _ in range(2):  # the second time from what was computed
        tiles = answer(served, "tiles", statistic="l2", mode=mode, columns=600)
        assert tiles["names"] == NAMES


def test_the_curve_of_a_tensor_that_was_saved_raw_is_computed(served: Page) -> None:
    assert "l2" in answer(served, "tensor", name="w03")["statistics"]
    found = answer(served, "series", name="w03", statistics="l2,mean", points=500)
    assert found["steps"] == list(STEPS)
    norms, means = (each["mean"] for each in found["statistics"])
    np.testing.assert_allclose(norms, [np.linalg.norm(values("w03", step)) for step in STEPS], rtol=1e-5)
    np.testing.assert_allclose(means, [values("w03", step).mean() for step in STEPS], rtol=1e-5)


def test_a_frame_has_the_statistics_of_what_was_saved_raw(folder: Path) -> None:
    pytest.importorskip("pandas")
    trial = tensortrial.create_trial(folder)
    for _ in range(2):
        frame = trial.frame("w*", "l2", mode="TRAIN")
        assert (list(frame.index), list(frame.columns)) == (list(STEPS), NAMES)
        assert frame["w05"][8] == pytest.approx(np.linalg.norm(values("w05", 8)))


def test_tensors_of_nothing_finite_have_tiles(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path / "run") as run, run.step(0, mode="TRAIN"):
        run.save_tensor("w", np.full(4, np.nan))
    with page(tmp_path / "run") as served:
        tiles = answer(served, "tiles", statistic="l2", columns=600)
    assert tiles["names"] == ["w"]


def test_tensors_that_few_steps_hold_have_statistics(tmp_path: Path) -> None:
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(41):
            with run.step(step, mode="TRAIN"):
                run.log({"loss": 1.0})
                if step % 10 == 5:
                    for name in NAMES:
                        run.save_tensor(name, values(name, step))
    with page(tmp_path / "run") as served:
        assert "l2" in fetch(served, "info")["runs"][0]["statistics"]
        assert answer(served, "tiles", statistic="l2", columns=600)["names"] == NAMES
        assert answer(served, "names") == [*NAMES, "loss"]


def test_the_statistics_of_many_raw_values_are_computed_at_equal_distances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, raw_bytes_of_an_answer=4 * 4000)
    with tensortrial.Run(tmp_path / "run") as run:
        for step in range(12):
            run.save_tensor("w", np.full(1000, step, np.float32), step=step)
    with page(tmp_path / "run") as served:
        found = answer(served, "series", name="w", mode="GLOBAL", statistics="mean", points=500)
        assert answer(served, "tiles", mode="GLOBAL", statistic="rms", columns=600)["leftOut"] == 8
    assert found["leftOut"] == 8
    assert found["steps"] == list(range(12))
    assert found["statistics"][0]["mean"] == [step if step % 3 == 2 else None for step in range(12)]
