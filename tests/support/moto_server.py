"""Run moto's server with conditional puts that are atomic, as those of S3 are: python moto_server.py PORT.

moto looks whether there is an object and then puts one: of two puts that race, both may win.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

_app = DomainDispatcherApplication(create_backend_app)
_one_at_a_time = threading.Lock()


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer a request; of those that create an object, one at a time."""
    if "HTTP_IF_NONE_MATCH" not in environ or environ["REQUEST_METHOD"] != "PUT":
        return _app(environ, start_response)
    # The body is read first: a client that stalls must not hold up the others.
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
    with _one_at_a_time:
        return _app(environ, start_response)


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True, request_handler=MotoRequestHandler)
