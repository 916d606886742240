"""The server of the page, in the foreground for the command line, in a thread for a notebook."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from asyncio import CancelledError
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Self
from urllib.parse import quote

from ..errors import ConfigurationError, MissingExtra
from ..read.runs import RunLocations, Runs
from .notebook import notebook_bundle
from .routes import Answers
from .security import Guard
from .served_runs import ServedRuns

_START_SECONDS = 30.0
_END_SECONDS = 5.0


class Page:
    """A page of runs. `page` makes one and serves it in a thread. Use it as a context manager, or call `close`.

    Args:
        runs: Open runs, or an argument of `open_runs`.
        host: The address to listen on.
        port: The port; 0 for a free one.
        token: The secret in the address; a random one if None, "" for none.
        allowed_hosts: Further names of the server, such as those of a proxy in front of it.
        storage_options: Options for fsspec.

    Attributes:
        url: The address, with the token in it.
        runs: The runs.
    """

    def __init__(
        self,
        runs: Runs | RunLocations,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
        allowed_hosts: Iterable[str] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        _check_extra()
        import uvicorn

        from .app import make_app

        token = secrets.token_urlsafe(16) if token is None else token
        if not isinstance(token, str) or quote(token, safe="", errors="replace") != token:
            raise ConfigurationError("token must be a text of letters, digits, and -._~ only, or '' for none")
        self._socket = _listen(host, port)
        try:
            self.runs = ServedRuns(runs, storage_options)
        except BaseException:
            self._socket.close()
            raise
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)
        self.url = f"http://{shown}:{self._socket.getsockname()[1]}/{token + '/' if token else ''}"
        names = {socket.gethostname(), socket.getfqdn()} if shown != host else set[str]()
        self._answers = Answers(self.runs, can_annotate=bool(token))
        app = Guard(make_app(self._answers, lambda: self._server.should_exit), token, host, names, allowed_hosts)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=1)
        logging.getLogger("uvicorn.error").addFilter(_is_no_end_of_a_request)
        self._server = uvicorn.Server(config)
        self._thread: threading.Thread | None = None
        self._describing = threading.Thread(target=self._describe, daemon=True)

    def serve(self) -> None:
        """Serve until the process is interrupted."""
        self._describing.start()
        try:
            self._server.run([self._socket])
        finally:
            self.runs.queries.close()
            # Python ends threads that are inside a library in C++ by an exception, by which the library may abort.
            self._describing.join(_END_SECONDS)

    def start(self) -> Self:
        """Serve in a thread.

        Returns:
            The page itself.
        """
        self._describing.start()
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)
        self._thread.start()
        deadline = time.monotonic() + _START_SECONDS
        while not self._server.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.005)
        return self

    def _describe(self) -> None:
        """Describe the runs while the browser loads the page. The answer is cached, but not an error."""
        with suppress(Exception):
            self._answers.info({})

    def close(self) -> None:
        """Stop serving, and close the runs."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_START_SECONDS)
        self._socket.close()
        self.runs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Page({self.url!r})"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        names = self.runs.names
        only = self.runs.run(names[0]).trial if len(names) == 1 else None
        rows = [(run["name"], "ended" if run["ended"] else "running") for run in self._answers.info({})["runs"]]
        return notebook_bundle(self.url, only, rows)


def page(
    runs: Runs | RunLocations,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    allowed_hosts: Iterable[str] = (),
) -> Page:
    """Serve runs as a page in the browser, in a thread of this process. It needs the extra `page`.

    Args:
        runs: Open runs, or an argument of `open_runs`: a path, a pattern, a Trial, a list of these.
        host: The address to listen on. Only this computer can reach the default.
        port: The port; 0 for a free one.
        token: The secret in the address; a random one if None. With "" everybody who reaches the address can read the
            page.
        allowed_hosts: Further names of the server, such as those of a proxy in front of it.

    Returns:
        The page, whose address is `url`. A notebook shows it in a frame, or as a picture if it cannot be reached.

    Raises:
        RunNotFound: No run can be opened.
        ConfigurationError: The address cannot be listened on.
        MissingExtra: The extra `page` is not installed.
    """
    return Page(runs, host=host, port=port, token=token, allowed_hosts=allowed_hosts).start()


def _is_no_end_of_a_request(record: logging.LogRecord) -> bool:
    """Return False for uvicorn's messages about requests that it cancels because the server ends."""
    exc = record.exc_info and record.exc_info[1]
    return not isinstance(exc, CancelledError) and "timeout graceful shutdown exceeded" not in str(record.msg)


def _check_extra() -> None:
    for package in ("starlette", "uvicorn"):
        try:
            __import__(package)
        except ImportError as exc:
            raise MissingExtra(package, "page", "the page") from exc


def _listen(host: str, port: int) -> Any:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family)
    except (OSError, OverflowError, TypeError, ValueError) as exc:
        raise ConfigurationError(f"cannot listen on {host!r}, port {port}: {exc}; pass another one") from exc
