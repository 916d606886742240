"""A proxy on loopback in front of an S3 server, which does to requests what networks and servers do to them."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from email.utils import format_datetime, parsedate_to_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any
from urllib.parse import urlsplit

from support.servers import ObjectStore

FAULTS = ("500", "503", "reset before", "reset after", "cut", "slow")
"""An answer instead of the request; the connection reset before the request reaches the server, after it, or in the
middle of the answer; an answer that comes piece by piece."""
_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive"}
_ERROR = "<Error><Code>{}</Code><Message>a fault of the test</Message></Error>"
_CODES = {"500": "InternalError", "503": "SlowDown"}


class _Server(ThreadingHTTPServer):
    proxy: FaultProxy


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _answer(self) -> None:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.proxy.fault(self.command)
        if fault in _CODES:
            self._send(int(fault), [], _ERROR.format(_CODES[fault]).encode(), "")
        elif fault == "reset before":
            self._reset()
        else:
            self._send(*self.server.proxy.forward(self, body), fault)

    # The names that http.server calls.
    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815

    def _send(self, status: int, headers: list[tuple[str, str]], body: bytes, fault: str) -> None:
        if fault == "reset after":
            self._reset()
            return
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self._send_body(body, fault)

    def _send_body(self, body: bytes, fault: str) -> None:
        if fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self._reset()
        elif fault == "slow":
            step = max(1, len(body) // 5)
            for begin in range(0, len(body), step):
                self.wfile.write(body[begin : begin + step])
                time.sleep(0.02)
        else:
            self.wfile.write(body)

    def _reset(self) -> None:
        # With this option, closing a socket sends a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True


class FaultProxy:
    """Passes requests on to `store`, with faults at random; the same seed has the same faults in the same order."""

    def __init__(self, store: ObjectStore, seed: int = 0) -> None:
        self._target = urlsplit(store.endpoint_url)
        self._rng, self._lock = Random(seed), threading.Lock()
        self.probability = 0.0
        """Of a fault, for each request."""
        self.next_faults: list[str] = []
        """Those of the next requests, before any at random. An empty text is none."""
        self.methods: tuple[str, ...] = ("GET", "PUT", "HEAD", "POST", "DELETE")
        """The requests that faults happen to."""
        self.skew = timedelta()
        """How far the server's clock, as its answers show it, is from the real one."""
        self.done: Counter[str] = Counter()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.proxy = self
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        url = f"http://127.0.0.1:{self._server.server_port}"
        self.store = ObjectStore(url, store.key, store.secret)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def fault(self, method: str) -> str:
        """Return the fault of the next request; an empty text for none."""
        if method not in self.methods:
            return ""
        with self._lock:
            if self.next_faults:
                fault = self.next_faults.pop(0)
            else:
                fault = self._rng.choice(FAULTS) if self._rng.random() < self.probability else ""
            self.done[fault] += 1
            return fault

    def forward(self, request: BaseHTTPRequestHandler, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        """Send a request to the server. Return the status, the headers and the body of its answer."""
        upstream = http.client.HTTPConnection(self._target.hostname or "", self._target.port, timeout=60)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}
        upstream.request(request.command, request.path, body, headers)
        answer = upstream.getresponse()
        data = answer.read()
        kept = [(name, self._skewed(name, value)) for name, value in answer.getheaders()]
        upstream.close()
        return answer.status, [(name, value) for name, value in kept if name.lower() not in _HOP_BY_HOP], data

    def _skewed(self, name: str, value: str) -> str:
        if not self.skew or name.lower() not in ("date", "last-modified"):
            return value
        return format_datetime(parsedate_to_datetime(value) + self.skew, usegmt=True)


@contextmanager
def faults_before(store: ObjectStore, seed: int = 0) -> Iterator[FaultProxy]:
    """Start a proxy in front of a server, and stop it after the block."""
    proxy = FaultProxy(store, seed)
    try:
        yield proxy
    finally:
        proxy.close()
