"""Values that are nearly equal, and those at the ends of the numbers."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.browser import CHROMIUM, serving, show, text
from support.pages import fetch
from tensortrial.pages import Page
from tensortrial.pages.report import report

VALUES = {
    "softmax of equal logits": np.array([1 / 3, 1 - 2 / 3, 1 / 3]),
    "times": np.arange(4) + 1764000000123456789,
    "equal times": np.full(4, 1764000000123456789),
    "float32": np.full(4, 1e17, np.float32),
    "one and its neighbor": np.array([1.0, np.nextafter(1.0, 2)]),
    "ends": np.array([-1.7e308, 1.7e308]),
    "large": np.full((2, 2), 1e300),
    "unsigned": np.full(3, 2**64 - 1, np.uint64),
    "subnormal": np.array([5e-324, 1e-323]),
}
SCALARS = {"rising": [1e-300, 1e240], "ends": [-1.7e308, 1.7e308], "small": [1e-300, 2e-300]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("extremes") / "run"
    with tensortrial.Run(folder) as run:
        for step in range(2):
            for name, value in VALUES.items():
                run.save_tensor(f"t/{name}", value, step=step)
            run.log({name: values[step] for name, values in SCALARS.items()}, step=step)
    return folder


def answer(served: Page, path: str, **given: Any) -> Any:
    return fetch(served, path, **{"run": "run", "mode": "GLOBAL", **given})


@pytest.mark.parametrize("name", VALUES)
def test_a_tensor_has_a_histogram_whose_edges_differ(served: Page, name: str) -> None:
    found = [
        *answer(served, "histograms", name=f"t/{name}"),
        *answer(served, "histograms", name=f"t/{name}", **{"from": 1, "to": 1}),
    ]
    assert len(found) == 3
    for each in found:
        assert sum(each["counts"]) == VALUES[name].size
        assert (np.diff(each["edges"]) >= 0).all()
        assert each["edges"][0] < each["edges"][-1]
        assert (np.diff([each["edges"][0], *each["quantiles"], each["edges"][-1]]) >= 0).all()


def test_the_heat_map_has_numbers_that_float32_lacks(served: Page) -> None:
    tiles = answer(served, "tiles", statistic="value")
    assert tiles["wide"]
    shape = len(tiles["names"]), 2
    planes = np.frombuffer(zlib.decompress(base64.b64decode(tiles["packed"])), "u1").reshape(-1, 2, *shape)
    largest = ((planes[0, 0].astype("u8") << 8 | planes[0, 1]) << 48).view("f8")
    for name, values in SCALARS.items():
        np.testing.assert_allclose(largest[tiles["names"].index(name)], values, rtol=0.04)


@pytest.mark.slow
def test_a_report_holds_them(folder: Path, tmp_path: Path) -> None:
    assert report(folder, tmp_path / "report.html") == 0
    assert "t/subnormal" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: make chromium")
def test_charts_and_images_show_them(folder: Path, tab: Any) -> None:
    with serving(folder) as url:
        show(tab, url, "view=overview&stat=value&color=value")
        assert "NaN or infinity" not in text(tab, ".legend")
        show(tab, url, "view=scalars&smooth=0")
        assert tab.locator(".error, .bad").count() == 0
        for name in VALUES:
            show(tab, url, f"view=tensor&name=t/{name}")
            tab.wait_for_selector("canvas[aria-label^=Histograms]")
            # The variance of the ends of float64 is infinite.
            expected = ["NaN or inf at 2 steps, first at 0"] if name == "ends" else []
            assert tab.locator(".error, .bad").all_inner_texts() == expected, name
