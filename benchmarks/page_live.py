"""What an open page costs while nothing happens, and how soon it learns of a step.

This program writes a run, the command serves its page, and this program reads the page's events as a browser does.
`--browser` opens the page in chromium, and measures until the step is on the screen.

    python benchmarks/page_live.py --tensors 1000 --seconds 20
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from common import header, line, scratch
from page import Served

import tensortrial

_BEFORE = 200


class Writer:
    """A run of small tensors with a norm each, that is published step by step."""

    def __init__(self, out: str, tensors: int) -> None:
        self._run = tensortrial.Run(out, flush_seconds=0, reduction_config=tensortrial.ReductionConfig(norms=["l2"]))
        self._values = {f"net.layer_{i}": np.ones(64, np.float32) for i in range(tensors)}

    def step(self) -> None:
        """Save a step, and return when it is published."""
        with self._run.step():
            self._run.save_tensors(self._values)
        self._run.flush()


def idle(served: Served, seconds: float) -> float:
    """Return the share of one core that the server takes while one page is open and nothing is written."""
    ended = threading.Event()

    def follow() -> None:
        with httpx.stream("GET", f"{served.url}api/events", timeout=600) as events:
            for _ in events.iter_lines():
                if ended.is_set():
                    return

    threading.Thread(target=follow, daemon=True).start()
    time.sleep(2)
    before = served.cpu_seconds
    time.sleep(seconds)
    ended.set()
    return (served.cpu_seconds - before) / seconds


def delays(served: Served, writer: Writer, steps: int) -> list[float]:
    """Return how long after it was published each step is in the answer that an event makes a page fetch."""
    found = []
    tiles = {"run": "run", "statistic": "l2", "mode": "GLOBAL", "columns": 300}
    with httpx.Client(timeout=60) as client:
        client.get(f"{served.url}api/tiles", params=tiles).raise_for_status()
        with client.stream("GET", f"{served.url}api/events") as events:
            lines = events.iter_lines()
            next(lines)
            for _ in range(steps):
                writer.step()
                begun = time.perf_counter()
                while next(lines) != "data: grown":
                    pass
                for path, given in (("info", {}), ("tiles", tiles)):
                    client.get(f"{served.url}api/{path}", params=given).raise_for_status()
                found.append(time.perf_counter() - begun)
                time.sleep(0.3)
    return found


def on_screen(served: Served, writer: Writer, steps: int) -> list[float]:
    """Return how long after it was published each step is counted on the screen of chromium."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as playwright:
        chromium: Any = playwright.chromium.launch(
            executable_path=os.environ.get("TENSORTRIAL_CHROMIUM") or shutil.which("chromium"), args=["--no-sandbox"]
        )
        tab = chromium.new_page()
        tab.goto(served.url)
        tab.wait_for_selector("main[data-ready]")
        ready = (
            "n => Number(document.querySelector('main').innerText.match(/× ([0-9,]+) steps/)[1].replace(',', '')) >= n"
        )
        known = tab.evaluate("() => Number(document.querySelector('main').innerText.match(/× ([0-9,]+) steps/)[1])")
        for number in range(steps):
            writer.step()
            begun = time.perf_counter()
            tab.wait_for_function(ready, arg=known + number + 1, polling=20)
            found.append(time.perf_counter() - begun)
            time.sleep(0.3)
        chromium.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tensors", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--browser", action="store_true")
    options = parser.parse_args()
    header(f"The page of a run that is being written: {options.tensors} tensors, {_BEFORE} steps in a file each so far")
    with scratch() as folder:
        run = str(Path(folder) / "run")
        writer = Writer(run, options.tensors)
        for _ in range(_BEFORE):
            writer.step()
        with Served(run, folder / "kept") as served:
            share = idle(served, options.seconds)
            line("one core, while nothing is written", f"{100 * share:.1f} %", "5 %")
            measure = on_screen if options.browser else delays
            found = measure(served, writer, options.steps)
            what = "the screen shows it" if options.browser else "its tiles are fetched"
            measured = f"{statistics.median(found):.2f} s, at most {max(found):.2f}"
            line(f"from a published step until {what}", measured, "1 s")


if __name__ == "__main__":
    main()
