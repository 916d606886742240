"""The access control of the page, by a token, the host's name and the origin."""

from __future__ import annotations

import ipaddress
import re
import secrets
from collections.abc import Iterable
from typing import Any
from urllib.parse import SplitResult, urlsplit

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self' http://localhost:* http://127.0.0.1:*"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_OWN_SITES = ("same-origin", "same-site", "none")

_Scope = dict[str, Any]


class Guard:
    """An ASGI middleware that refuses unauthorized requests.

    The path of every request begins with the token. `Host` must be a known name of the server: otherwise the owner of a
    domain could point it here and read the page. `Origin` must be the page's.

    Args:
        token: The secret in the path; "" for none.
        host: The address that the server listens on.
        names: Further names of the server.
        proxies: The names of proxies in front of it. A proxy may keep the browser's `Origin`, and write the server's
            own name into `Host`.
    """

    def __init__(self, app: Any, token: str, host: str, names: Iterable[str] = (), proxies: Iterable[str] = ()) -> None:
        self._app, self._token, self._host = app, token, host
        self._proxies = {name.lower().strip("[]") for name in proxies}
        self._names = {*_LOOPBACK, host.lower(), *(name.lower() for name in names), *self._proxies}

    async def __call__(self, scope: _Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = self._path(scope)
        problem = self._problem(scope, path)
        if problem is not None:
            await _refuse(send, problem)
            return
        await self._app({**scope, "path": path, "raw_path": None}, receive, _with_headers(send))

    def _path(self, scope: _Scope) -> str | None:
        """Return the path without the token; None if the path lacks the token."""
        path: str = scope["path"]
        if not self._token:
            return path
        token, slash, rest = path[1:].partition("/")
        same = secrets.compare_digest(token.encode(errors="replace"), self._token.encode())
        return f"/{rest}" if same and slash else None

    def _problem(self, scope: _Scope, path: str | None) -> str | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._knows(host := headers.get("host", "")):
            return (
                f"this server is not known as {host!r}; open the page by the address that it printed, or serve it with "
                "--allowed-host and the name of the proxy"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(urlsplit(origin), host):
            return f"pages of {origin!r} may not read this one"
        if headers.get("sec-fetch-site", "none") not in _OWN_SITES and headers.get("sec-fetch-mode") != "navigate":
            return "other sites may not read this page"
        if path is None:
            return "the address lacks the token; open the page by the address that it printed"
        return None

    def _is_own(self, origin: SplitResult, host: str) -> bool:
        return origin.netloc.lower() == host.lower() or (origin.hostname or "") in self._proxies

    def _knows(self, host: str) -> bool:
        found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(:\d+)?", host)
        if found is None:
            return False
        name = found[1].strip("[]").lower()
        # A server on all addresses accepts every IP address as its name; these cannot be domains.
        return name in self._names or (self._host in ("0.0.0.0", "::", "") and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Any) -> Any:
    async def sending(message: _Scope) -> None:
        if message["type"] == "http.response.start":
            kept = [pair for pair in message["headers"] if pair[0].decode("latin-1") not in _HEADERS]
            message = {**message, "headers": [*kept, *_encoded(_HEADERS)]}
        await send(message)

    return sending


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


async def _refuse(send: Any, problem: str) -> None:
    headers = _encoded({**_HEADERS, "content-type": "text/plain; charset=utf-8"})
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": problem.encode(errors="replace")})
