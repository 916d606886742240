"""The page of a run of 100,000 steps in a real browser: no spike is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import MARKS, picture, serving, show, text
from support.large_runs import write_large

pytestmark = [*MARKS, pytest.mark.slow]

STEPS, SPIKE = 100_000, 61_803
NAMES = [f"net.layer_{i}.weight" for i in range(12)]
ROW = 7

# The pixels of a row that have the last color of the legend, as shares of the width of the cells.
MOST = """row => {
  const canvas = document.querySelector('canvas.heatmap');
  const [ratio, left, top] = [devicePixelRatio, Number(canvas.dataset.left), 14];
  const [width, height] = [canvas.clientWidth - left - 8, canvas.clientHeight - top - 26];
  const y = Math.round((top + (row + 0.5) * height / ROWS) * ratio);
  const line = canvas.getContext('2d').getImageData(left * ratio, y, width * ratio, 1).data;
  const strip = document.querySelector('canvas.strip');
  const last = strip.getContext('2d').getImageData(strip.width - 1, 5, 1, 1).data;
  const found = [];
  for (let x = 0; x < width * ratio; x++) {
    if ([0, 1, 2].every((part) => Math.abs(line[4 * x + part] - last[part]) < 12)) found.push(x / (width * ratio));
  }
  return found;
}""".replace("ROWS", str(len(NAMES)))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("large") / "run"
    write_large(out, NAMES, STEPS, (NAMES[ROW], SPIKE))
    return out


@pytest.fixture(scope="module")
def served(run: Path) -> Iterator[str]:
    with serving(run) as url:
        yield url


@pytest.mark.parametrize("span", [STEPS, 30_000, 5_000, 600, 40])
def test_a_spike_of_one_step_is_seen_at_every_zoom(served: str, tab: Any, span: int) -> None:
    first = 0 if span == STEPS else SPIKE - span // 3
    window = "" if span == STEPS else f"&from={first}&to={first + span}"
    show(tab, served, f"order=name{window}")
    row = sorted(NAMES, key=lambda name: int(name.split("_")[1].split(".")[0])).index(NAMES[ROW])
    tab.wait_for_function(f"row => ({MOST})(row).length", arg=row)  # the canvas draws at the next frame
    found = tab.evaluate(MOST, row)
    assert min(found) - 0.02 <= (SPIKE - first) / span <= max(found) + 0.02
    assert tab.evaluate(MOST, row - 1) == []
    if span == STEPS:
        assert "12 tensors × 100,000 steps" in text(tab)
    if span in (STEPS, 40):
        picture(tab, "large" if span == STEPS else "large-zoomed")
