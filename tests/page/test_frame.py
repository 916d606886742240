"""What a notebook shows of the page, in a real browser: the page in a frame, or the picture where there is none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.browser import MARKS, picture
from support.runs import TRAIN, Job
from tensortrial.pages import page

pytest.importorskip("matplotlib")
pytestmark = MARKS


@contextmanager
def notebook(html: str) -> Iterator[str]:
    """Serve HTML as Jupyter would: from another port, and a name that differs from the page's."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(f"<!doctype html><h3>Notebook</h3>{html}".encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


def test_a_notebook_shows_the_page_and_without_its_process_a_picture(tab: Any, tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        for step in range(12):
            values = {f"gradient/layer{i}": np.full(4, (step + 1.0) * 10**i) for i in range(5)}
            job.step(values, TRAIN, statistics=("l2",), collections=("gradients",))
    with page(tmp_path / "run") as served, notebook(served._repr_mimebundle_()["text/html"]) as address:
        tab.goto(address)
        tab.wait_for_function("document.querySelector('object')")
        frame = next(each for each in tab.frames if each.url.startswith(served.url))
        frame.wait_for_selector("canvas")
        assert not tab.locator("object img").is_visible()
        tab.wait_for_timeout(1000)
        picture(tab, "notebook_page")
        served.close()
        tab.reload()
        tab.locator("object img").wait_for(state="visible")
        assert tab.evaluate("document.querySelector('object img').naturalWidth") > 500
        picture(tab, "notebook_picture")
