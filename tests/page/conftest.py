"""What all tests of the page share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import CHROMIUM, ENDED, SECONDS
from tensortrial.pages import Page, page


@pytest.fixture(scope="session", autouse=True)
def _tiles_are_kept_in_a_folder_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORTRIAL_CACHE", str(tmp_path_factory.mktemp("kept tiles")))
        yield


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Page]:
    """The page of the folder of a module."""
    with page(folder) as served:
        yield served


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A page of 1280 pixels, on which no error may occur."""
    context = chromium.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(SECONDS * 1000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def log(message: Any) -> None:
        if message.type == "error" and not message.location["url"].startswith(tuple(ENDED)):
            errors.append(message.text)

    page.on("console", log)
    # What the browser logs for a query that the server refuses, and for a server that ends before the tab.
    expected = re.compile("status of 400|net::ERR_")
    page.on("dialog", lambda dialog: errors.append(f"a dialog: {dialog.message}"))
    yield page
    context.close()
    assert not [error for error in errors if not expected.search(error)]
