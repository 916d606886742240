"""Requests to a page."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tensortrial.pages import Page


def get(served: Page, path: str, **parameters: Any) -> httpx.Response:
    return httpx.get(f"{served.url}api/{path}", params=parameters, timeout=60)


def fetch(served: Page, path: str, **parameters: Any) -> Any:
    """Return an answer, which is JSON by the standard, without NaN."""
    response = get(served, path, **parameters)
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_constant=pytest.fail)
