"""The page as an ASGI application: the files of `static/`, the requests below api/, and events while runs grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..errors import TensorTrialError
from .payload import dump
from .routes import Answers
from .served_runs import ServedRuns

STATIC = Path(__file__).resolve().parent / "static"
# The seconds between two polls of running jobs, and the number of these polls between two of ended runs.
_TICK_SECONDS = 0.5
_TICKS_ENDED = 10
_COMMENT_SECONDS = 15.0
_MOST_BYTES = 16 << 20


def make_app(answers: Answers, is_ending: Callable[[], bool]) -> Starlette:
    """Return the application, which must be wrapped by `security.Guard`.

    Open requests end once `is_ending` returns True: the server is shutting down.
    """

    def answer(request: Request) -> Response:
        return _respond(lambda: answers.answer(request.path_params["path"], request.query_params))

    async def post(request: Request) -> Response:
        path, given = request.path_params["path"], await _posted(request)
        work = answers.annotate if path == "notes" else partial(answers.answer, path)
        return await run_in_threadpool(_respond, lambda: work(given))

    def npy(request: Request) -> Response:
        return _respond(lambda: answers.npy(request.query_params))

    def index(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    def events(request: Request) -> Response:
        return StreamingResponse(_events(request, answers.runs, is_ending), media_type="text/event-stream")

    routes = [
        Route("/", index),
        Route("/api/events", events),
        Route("/api/npy", npy),
        Route("/api/{path:path}", answer),
        Route("/api/{path:path}", post, methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    return app


async def _posted(request: Request) -> dict[str, str]:
    """Return the parameters of a request, of which those in its body may be long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BYTES:
            raise HTTPException(413)
    return {**request.query_params, **dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))}


def _respond(work: Any) -> Response:
    try:
        answer = work()
        if isinstance(answer, bytes):
            return Response(answer, media_type="application/octet-stream")
        return Response(dump(answer), media_type="application/json")
    except TensorTrialError as exc:
        return Response(dump({"error": str(exc)}), status_code=400, media_type="application/json")


async def _events(request: Request, runs: ServedRuns, is_ending: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield an event when a run has grown, ended, begun or was deleted, and comments to detect closed tabs."""
    known, all_ended = await run_in_threadpool(runs.state)
    yield "retry: 2000\n\n"
    quiet = 0.0
    while not await request.is_disconnected():
        for _ in range(_TICKS_ENDED if all_ended else 1):
            if is_ending():
                return
            await asyncio.sleep(_TICK_SECONDS)
            quiet += _TICK_SECONDS
        now, all_ended = await run_in_threadpool(runs.state)
        if now != known:
            known, quiet = now, 0.0
            yield "data: grown\n\n"
        elif quiet >= _COMMENT_SECONDS:
            quiet = 0.0
            yield ": still here\n\n"
