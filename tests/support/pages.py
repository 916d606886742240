"""Requests to a page."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tensortrial.pages import Page

# `httpx.get` makes a client, and each client loads the certificates of authorities, which takes longer than an answer.
CLIENT = httpx.Client(verify=False, limits=httpx.Limits(max_keepalive_connections=0))


def get(served: Page, path: str, **parameters: Any) -> httpx.Response:
    return CLIENT.get(f"{served.url}api/{path}", params=parameters, timeout=60)


def fetch(served: Page, path: str, **parameters: Any) -> Any:
    """Return an answer, which is JSON by the standard, without NaN."""
    response = get(served, path, **parameters)
    assert response.status_code == 200, response.text
    return json.loads(response.text, parse_constant=pytest.fail)
