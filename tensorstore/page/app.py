"""The page as an ASGI application: the files of `static/`, the requests below api/, and events while runs grow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..errors import TensorTrialError
from .open_run import OpenRun
from .payload import dump
from .routes import Answers

STATIC = Path(__file__).resolve().parent / "static"
# Between two looks at runs that are being written, and at runs that have ended.
_LIVE_SECONDS = 0.5
_ENDED_SECONDS = 5.0
_COMMENT_SECONDS = 15.0


def make_app(answers: Answers) -> Starlette:
    """Return the application, which only `security.Guard` may stand in front of."""

    def answer(request: Request) -> Response:
        return _respond(lambda: answers.answer(request.path_params["path"], request.query_params))

    def run_rules(request: Request) -> Response:
        return _respond(lambda: answers.run_rules(request.query_params))

    def index(request: Request) -> Response:
        return FileResponse(STATIC / "index.html")

    def events(request: Request) -> Response:
        return StreamingResponse(_events(request, answers.runs), media_type="text/event-stream")

    routes = [
        Route("/", index),
        Route("/api/events", events),
        Route("/api/rules/run", run_rules, methods=["POST"]),
        Route("/api/{path:path}", answer),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(routes=routes)
    app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)
    return app


def _respond(work: Any) -> Response:
    try:
        return Response(dump(work()), media_type="application/json")
    except TensorTrialError as exc:
        return Response(dump({"error": str(exc)}), status_code=400, media_type="application/json")


async def _events(request: Request, runs: Sequence[OpenRun]) -> AsyncIterator[str]:
    """Yield an event whenever a run has grown or ended, and a comment now and then, which finds lost connections."""
    known = await run_in_threadpool(_versions, runs)
    yield "retry: 2000\n\n"
    quiet = 0.0
    while not await request.is_disconnected():
        seconds = _ENDED_SECONDS if all(ended for _, ended, _ in known) else _LIVE_SECONDS
        await asyncio.sleep(seconds)
        now = await run_in_threadpool(_versions, runs)
        if now != known:
            known, quiet = now, 0.0
            yield "data: grown\n\n"
        elif (quiet := quiet + seconds) >= _COMMENT_SECONDS:
            quiet = 0.0
            yield ": still here\n\n"


def _versions(runs: Sequence[OpenRun]) -> list[tuple[int, bool, tuple[str, ...]]]:
    return [run.state() for run in runs]
