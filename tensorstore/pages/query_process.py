"""Separate processes for the page's SQL. One that needs too much memory or time is killed, without harm to the page.

The server and a process communicate over pipes: by a pickled `Job` in one direction, a line of JSON in the other.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..engines.base import Answer
from ..engines.memory_limit import ENVIRONMENT_VARIABLE, default_memory_limit, memory_of_process
from ..errors import QueryError, TensorTrialError
from ..named_queries import query as run_query
from ..read.runs import Runs
from ..read.trial import Trial
from ..snapshot.snapshot import run_info
from ..storage.open import Storage
from .payload import cell, dump

_TIMEOUT_SECONDS = 60.0
# The seconds after which a process is killed that did not end its query itself.
_LATER_SECONDS = 10.0
_MOST_ROWS = 2_000
_MOST_BYTES = 8 << 20
# The memory of a process in addition to the engine's: its modules, the stacks of threads, and the values of some rows.
_BASE_BYTES = 512 << 20
_PROGRAM = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tensortrial.pages.query_process import serve
serve()
"""
_TOO_LARGE = (
    "the query needs more memory than the page allows; select fewer rows or columns, or serve the page with more in "
    f"{ENVIRONMENT_VARIABLE}, such as 8GB"
)


@dataclass(frozen=True)
class Job:
    """One query."""

    runs: list[Storage]
    name: str
    """The name of a single run, whose views lack the column `run`; "" for views of several runs."""
    query: str
    """A SELECT, or the name of a named query if there are parameters."""
    parameters: Mapping[str, Any] | None = None


class QueryProcesses:
    """The processes of one page. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._busy = set[_Process]()
        self._most_idle = 2

    def answer(self, job: Job) -> dict[str, Any]:
        """Return the rows of a query for the page.

        Raises:
            QueryError: The query is wrong, or needs too much memory or time.
        """
        if any(storage.url.startswith("memory:") for storage in job.runs):
            return answer_of(job)  # only this process has these runs
        with self._lock:
            process = self._idle.pop() if self._idle else _Process()
            self._busy.add(process)
        over = [process]
        try:
            found = process.answer(job)
            with self._lock:
                self._idle.append(process)
                over = [self._idle.pop(0) for _ in range(len(self._idle) - self._most_idle)]
        finally:
            with self._lock:
                self._busy.remove(process)
            for each in over:
                each.end()
        if "error" in found:
            raise QueryError(found["error"])
        return found

    def close(self) -> None:
        """End the processes, also those that are answering a query."""
        with self._lock:
            self._most_idle = 0
            for process in self._busy:
                process.kill()
            for process in self._idle:
                process.end()
            self._idle.clear()


class _Process:
    """A process that answers one query after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is the server's
        )

    def answer(self, job: Job) -> dict[str, Any]:
        assert self._process.stdin
        try:
            pickle.dump(job, self._process.stdin)
            self._process.stdin.flush()
            line = self._line(time.monotonic() + _TIMEOUT_SECONDS + _LATER_SECONDS)
        except BrokenPipeError:
            line = b""
        if not line.endswith(b"\n"):
            raise QueryError(_TOO_LARGE)
        return json.loads(line)

    def _line(self, deadline: float) -> bytes:
        """Return a line. It is incomplete if the process has ended."""
        assert self._process.stdout
        parts, pipe = list[bytes](), self._process.stdout.fileno()
        while not parts or not parts[-1].endswith(b"\n"):
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise QueryError(f"the query took longer than {_TIMEOUT_SECONDS:g} seconds")
            if not (part := os.read(pipe, 1 << 20)):
                break
            parts.append(part)
        return b"".join(parts)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with suppress(BrokenPipeError):
                pipe.close()


def _limit() -> int:
    """Return the memory limit of a process in bytes."""
    found = re.fullmatch(r"\s*([\d.]+)\s*([KMGT])(I?)B\s*", default_memory_limit().upper())
    if found is None:
        return memory_of_process()
    return int(float(found[1]) * (1024 if found[3] else 1000) ** (1 + "KMGT".index(found[2]))) + _BASE_BYTES


# Functions that run in the process.


def serve() -> None:
    """Answer the queries on standard input until its end."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not mix with answers
    with suppress(ValueError, OSError):
        # The limit is on writable pages, not on the address space.
        resource.setrlimit(resource.RLIMIT_DATA, (_limit(), _limit()))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="utf-8")
    while True:
        try:
            job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answers.write(dump(answer_of(job)) + b"\n")
        except MemoryError:  # QueryMemoryExceeded is one
            answers.write(dump({"error": _TOO_LARGE}) + b"\n")
        except (TensorTrialError, FileNotFoundError) as exc:
            answers.write(dump({"error": str(exc)}) + b"\n")
        answers.flush()


def answer_of(job: Job) -> dict[str, Any]:
    """Return the rows of a query for the page."""
    if job.name:
        with Trial(job.runs[0], run_info(job.runs[0], has_begun=False), job.name) as trial:
            return _rows(trial.sql(job.query, timeout=_TIMEOUT_SECONDS))
    with Runs(job.runs) as runs:
        if job.parameters is None:
            return _rows(runs.sql(job.query, timeout=_TIMEOUT_SECONDS))
        return _rows(run_query(runs, job.query, timeout=_TIMEOUT_SECONDS, **job.parameters))


def _rows(answer: Answer) -> dict[str, Any]:
    """Return the first rows, up to the page's limits of rows and bytes."""
    rows, left = list[Sequence[Any]](), _MOST_BYTES
    for row in islice(iter(answer), _MOST_ROWS + 1):
        if len(rows) == _MOST_ROWS or left <= 0:
            return {"columns": answer.columns, "rows": rows, "more": True}
        rows.append([cell(value) for value in row])
        left -= sum(len(value) if isinstance(value, str) else 8 for value in rows[-1])
    return {"columns": answer.columns, "rows": rows, "more": False}
