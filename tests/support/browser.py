"""What tests of the page in a real browser share: Debian's chromium, a served page, and what is on the screen."""

from __future__ import annotations

import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.limits import set_limits
from tensortrial.pages import page

CHROMIUM = os.environ.get("TENSORTRIAL_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(find_spec("playwright") is None, reason="playwright is not installed: make env-page"),
    pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed: make chromium"),
]
"""The marks of a module that drives a browser."""
ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "build" / "page"  # screenshots, to be looked at
SECONDS = 60
ENDED = set[str]()
"""The addresses of servers that have ended: a request to one may fail."""


def in_python(program: str, path: Path) -> None:
    """Run a program in a process of its own."""
    paths = os.pathsep.join([*filter(None, map(os.path.abspath, sys.path)), str(path)])
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@contextmanager
def serving(*runs: Path | str, looks_often: bool = False) -> Iterator[str]:
    """Serve runs in a thread, and yield the URL. `looks_often` shortens the time until changes of ended runs are shown.

    The command has tests of its own in tests/page/test_runs_of_the_page.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        if looks_often:
            set_limits(patch, seconds_between_searches=0.5, polls_of_ended_runs=1)
        with page([*map(str, runs)]) as served:
            yield served.url
            ENDED.add(served.url)


def printed_url(process: subprocess.Popen[str]) -> str:
    """Return the URL that a server prints."""
    assert process.stdout
    said = ""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if not select.select([process.stdout], [], [], 1)[0]:
            continue
        line = process.stdout.readline()
        said += line
        if found := re.search(r"http://\S+", line):
            return found.group()
        if not line:
            break
    raise AssertionError(f"no URL was printed: {said}")


def show(tab: Any, url: str, fragment: str = "") -> None:
    """Open a state of the page, and wait for it."""
    tab.goto("about:blank")
    tab.goto(f"{url.split('#')[0]}#{fragment}")
    tab.wait_for_selector("main[data-ready]")


def ready(tab: Any, action: Any) -> None:
    """Do something, and wait until the view has answered it."""
    before = tab.locator("main").get_attribute("data-ready")
    action()
    tab.wait_for_function("before => document.querySelector('main').dataset.ready !== before", arg=before)


def picture(tab: Any, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    tab.wait_for_timeout(150)  # the canvas draws at the next frame
    tab.screenshot(path=PICTURES / f"{name}.png")


def text(tab: Any, selector: str = "main") -> str:
    return str(tab.locator(selector).first.inner_text())
