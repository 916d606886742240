"""The points of curves: how many steps each holds, and the last value."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import tensortrial
from support.browser import CHROMIUM, serving, show
from support.pages import fetch
from tensortrial.pages import Page

LARGEST = sys.float_info.max
POINTS = 16


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of many and of few steps, and of values at the end of the numbers."""
    folder = tmp_path_factory.mktemp("curves")
    with tensortrial.Run(folder / "modes") as run:
        for step in range(64):
            with run.step(mode="TRAIN"):
                run.log({"loss": 64.0 - step})
            if step % 16 == 15:
                with run.step(mode="EVAL"):
                    run.log({"loss": float(step)})
    with tensortrial.Run(folder / "late") as run:
        for step in range(1_000_000, 1_000_040):
            run.log({"loss": float(step), "rare": 1.0} if step % 10 == 0 else {"loss": float(step)}, step=step)
    with tensortrial.Run(folder / "large") as run:
        for step in range(40):
            run.log({"loss": LARGEST, "other": LARGEST if step % 2 else -LARGEST}, step=step)
    return folder


def curve(served: Page, run: str, name: str, mode: str, path: str) -> dict[str, Any]:
    """Return a curve as one of two requests answers it."""
    given = {"run": run, "name": name, "mode": mode, "statistics": "value", "points": POINTS}
    given |= {"runs": json.dumps([run]), "names": json.dumps([name])}
    answer = fetch(served, path, **given)
    if path == "scalars":
        (found,) = [each for each in answer if each["mode"] == mode]
        return {**found, "last": found["last"]["value"]}
    return {"steps": answer["steps"], **answer["statistics"][0]}


@pytest.mark.parametrize("path", ["scalars", "series"])
def test_a_curve_of_few_steps_has_each_of_them(served: Page, path: str) -> None:
    assert curve(served, "modes", "loss", "EVAL", path)["steps"] == [0, 1, 2, 3]
    assert curve(served, "late", "rare", "GLOBAL", path)["steps"] == [1_000_000 + step for step in (0, 10, 20, 30)]


@pytest.mark.parametrize("path", ["scalars", "series"])
def test_a_curve_that_begins_late_has_as_many_points_as_one_from_the_start(served: Page, path: str) -> None:
    for run, mode, first in (("modes", "TRAIN", 0), ("late", "GLOBAL", 1_000_000)):
        steps = curve(served, run, "loss", mode, path)["steps"]
        assert POINTS / 2 <= len(steps) <= POINTS + 1
        assert steps[0] == first


@pytest.mark.parametrize("path", ["scalars", "series"])
def test_the_last_value_of_a_curve_is_that_of_its_last_step(served: Page, path: str) -> None:
    found = curve(served, "modes", "loss", "TRAIN", path)
    assert found["last"] == 1
    assert found["mean"][-1] == 2.5  # of the four steps of a point


@pytest.mark.parametrize("path", ["scalars", "series"])
def test_the_mean_of_values_at_the_end_of_the_numbers_is_finite(served: Page, path: str) -> None:
    near = pytest.approx(LARGEST, rel=1e-5)
    assert curve(served, "large", "loss", "GLOBAL", path)["mean"] == [near] * 10
    assert curve(served, "large", "other", "GLOBAL", path)["mean"] == [0] * 10


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: make chromium")
def test_a_run_of_few_steps_has_a_line_next_to_one_of_many(folder: Path, tmp_path: Path, tab: Any) -> None:
    for name, every in (("a", 10), ("b", 1)):
        with tensortrial.Run(tmp_path / name) as run:
            for step in range(0, 200, every):
                run.log({"loss": float(every)}, step=step)
    with serving(tmp_path) as url:
        show(tab, url, "view=scalars&smooth=0")
        tab.wait_for_function(f"({PIXELS})('#0072b2') > 300")
        show(tab, url, "view=scalars&smooth=0.6")
        tab.wait_for_function(f"({PIXELS})('#0072b2') > 300")
    with serving(folder) as url:
        show(tab, url, 'view=scalars&smooth=0&runs=["large"]')
        tab.wait_for_function(f"({PIXELS})('#009e73') > 300")  # the third of the folder's runs, in the third color


PIXELS = """color => {
    const canvas = document.querySelector(".uplot canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const near = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
    let found = 0;
    for (let i = 0; i < data.length; i += 4) if (near.every((each, j) => Math.abs(each - data[i + j]) < 40)) found++;
    return found;
}"""
