"""Draw the pictures of the page in the documentation, in a real browser: `make pictures`.

The runs are that of `examples/exploding.py`, of which one layer goes wrong, and that of the README's program.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "examples")]

import exploding  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

from support.browser import CHROMIUM, serving  # noqa: E402

WINDOW = {"width": 1280, "height": 800}
LAYER = "MLP_blocks.2.linear.weight"


def main() -> None:
    """Make the run in a temporary folder, and write the pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.chdir(folder)
        exploding.train("exploding")
        (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        subprocess.run([sys.executable, "-c", program], check=True)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        with serving("exploding") as url:
            tab = browser.new_page(viewport=WINDOW, color_scheme="light")
            draw(tab, f"{url}#view=overview&from=150", ".diagnosed b", "page-overview")
            draw(tab, f"{url}#view=tensor&name={LAYER}&step=214", "canvas.image", "page-tensor")
        with serving("runs/mine") as url:
            tab = browser.new_page(viewport={"width": 1280, "height": 560}, color_scheme="light")
            draw(tab, f"{url}#view=overview", ".diagnosed b", "page-mine")
        browser.close()


def draw(tab: Any, url: str, last: str, name: str) -> None:
    """Write what the browser shows once its last part is there."""
    tab.goto("about:blank")
    tab.goto(url)
    tab.wait_for_selector("main[data-ready]")
    tab.wait_for_selector(last)
    tab.wait_for_timeout(500)  # the canvas draws at the next frame
    tab.screenshot(path=IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
