"""The answers to requests, by their path, as JSON values. docs/page.md lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigurationError, QueryError
from ..mode import ModeKeys
from . import findings, many_runs, one_tensor, overview, raw_value
from .difference import difference
from .open_run import OpenRun
from .served_runs import ServedRuns

Parameters = Mapping[str, str]

# Requests with a user's query, whose errors are the user's. Errors of other queries come from files that were damaged
# after their verification; after another verification they are left out.
_OF_USERS = ("sql", "query")

# Steps are 64-bit integers, with room for arithmetic.
_LARGEST = 2**62


class Answers:
    """The answers of the page about some runs. Every method takes the parameters of a request."""

    def __init__(self, runs: ServedRuns, can_annotate: bool = False) -> None:
        self.runs, self._can_annotate = runs, can_annotate

    def answer(self, path: str, parameters: Parameters) -> Any:
        """Return the answer to a request for a path below api/, such as "tiles", as values of JSON.

        Raises:
            ConfigurationError: The path or a parameter is unknown, missing or wrong.
            TensorTrialError: A method of the run raised an error.
        """
        if path not in _REQUESTS:
            raise ConfigurationError(f"unknown request {path!r}; the requests are: {', '.join(_REQUESTS)}")
        try:
            return getattr(self, path)(parameters)
        except QueryError:
            if path in _OF_USERS:
                raise
        self.runs.reopen()
        return getattr(self, path)(parameters)

    def info(self, given: Parameters) -> dict[str, Any]:
        described = self.runs.describe(given.get("run", ""))
        damaged = {path: str(error) for path, error in self.runs.damaged.items()}
        named = [text if text.startswith(f"{path}: ") else f"{path}: {text}" for path, text in damaged.items()]
        return {"runs": described, "damaged": named, "editable": self._can_annotate}

    def sizes(self, _: Parameters) -> dict[str, int]:
        return self.runs.sizes()

    def names(self, given: Parameters) -> list[str]:
        return self._run(given).names

    def tiles(self, given: Parameters) -> dict[str, Any]:
        run, mode = self._run_and_mode(given)
        columns = _integer(given, "columns", 300)
        return overview.tiles(run, _text(given, "statistic"), mode, given.get("worker", ""), _bounds(given), columns)

    def tensor(self, given: Parameters) -> dict[str, Any]:
        run, mode = self._run_and_mode(given)
        return one_tensor.describe_tensor(run, _text(given, "name"), mode, given.get("worker", ""))

    def series(self, given: Parameters) -> dict[str, Any]:
        run, mode = self._run_and_mode(given)
        statistics = [each for each in given.get("statistics", "").split(",") if each]
        points = _integer(given, "points", 500)
        worker = given.get("worker", "")
        return one_tensor.series(run, _text(given, "name"), mode, worker, statistics, _bounds(given), points)

    def histograms(self, given: Parameters) -> list[dict[str, Any]]:
        run, mode = self._run_and_mode(given)
        count = _integer(given, "count", 40)
        return one_tensor.histograms(run, _text(given, "name"), mode, given.get("worker", ""), _bounds(given), count)

    def value(self, given: Parameters) -> dict[str, Any] | None:
        run, mode = self._run_and_mode(given)
        step, worker, name = _integer(given, "step"), given.get("worker", ""), _text(given, "name")
        return raw_value.value(run, name, mode, worker, step, given.get("slice", ""))

    def npy(self, given: Parameters) -> bytes:
        run, mode = self._run_and_mode(given)
        return raw_value.npy(run, _text(given, "name"), mode, given.get("worker", ""), _integer(given, "step"))

    def availability(self, given: Parameters) -> dict[str, Any]:
        run, mode = self._run_and_mode(given)
        return overview.availability(run, mode, _integer(given, "columns", 500))

    def findings(self, given: Parameters) -> list[dict[str, Any]]:
        return findings.findings(self._run(given))

    def diagnosis(self, given: Parameters) -> dict[str, Any]:
        run = self._run(given)
        return run.kept("diagnosis", lambda: findings.diagnosis(run))

    def annotate(self, given: Parameters) -> dict[str, Any]:
        if not self._can_annotate:
            raise ConfigurationError("everybody can reach a page without a token, so it takes no notes")
        return self.runs.annotate(_text(given, "run"), _object(given, "change"))

    def scalar_table(self, given: Parameters) -> list[dict[str, Any]]:
        return many_runs.scalar_table(self.runs, self._names(given))

    def scalars(self, given: Parameters) -> list[dict[str, Any]]:
        names, points = _texts(given, "names"), _integer(given, "points", 500)
        return many_runs.scalars(self.runs, _texts(given, "runs"), names, points)

    def difference(self, given: Parameters) -> dict[str, Any]:
        rtol, atol = _number(given, "rtol"), _number(given, "atol")
        return difference(self.runs.run(_text(given, "a")), self.runs.run(_text(given, "b")), rtol, atol)

    def queries(self, _: Parameters) -> list[dict[str, Any]]:
        return many_runs.list_named()

    def query(self, given: Parameters) -> dict[str, Any]:
        parameters = _object(given, "parameters") if "parameters" in given else {}
        return many_runs.run_named(self.runs, self._run(given), _text(given, "query"), parameters)

    def sql(self, given: Parameters) -> dict[str, Any]:
        return many_runs.run_sql(self.runs, self._names(given), _text(given, "sql"))

    def views(self, given: Parameters) -> list[dict[str, Any]]:
        return many_runs.list_views(self.runs, self._run(given))

    # Parameters.

    def _run(self, given: Parameters) -> OpenRun:
        return self.runs.run(_text(given, "run"))

    def _names(self, given: Parameters) -> list[str]:
        """Return the chosen runs. No name stands for all, because thousands of names do not fit into an address."""
        return _texts(given, "runs") if "runs" in given else self.runs.names

    def _run_and_mode(self, given: Parameters) -> tuple[OpenRun, str]:
        return self._run(given), ModeKeys.parse(given.get("mode") or "GLOBAL").name


_REQUESTS = (
    *("info", "sizes", "names", "tiles", "tensor", "series", "histograms", "value", "availability", "findings"),
    *("diagnosis", "scalar_table", "scalars", "difference", "queries", "query", "sql", "views"),
)
"""The requests that `answer` takes. Each has a method of its name."""


def _text(given: Parameters, name: str) -> str:
    if name not in given:
        raise ConfigurationError(f"the parameter {name!r} is missing")
    return given[name]


def _integer(given: Parameters, name: str, default: int | None = None) -> int:
    text = _text(given, name) if default is None else given.get(name, str(default))
    try:
        number = int(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a whole number, got {text!r}") from None
    if abs(number) >= _LARGEST:
        raise ConfigurationError(f"{name} must be between -2^62 and 2^62, got {number}")
    return number


def _number(given: Parameters, name: str) -> float | None:
    text = given.get(name, "")
    try:
        return float(text) if text else None
    except ValueError:
        raise ConfigurationError(f"{name} must be a number such as 1e-5, got {text!r}") from None


def _bounds(given: Parameters) -> tuple[int | None, int | None]:
    """Return the first step and the step after the last one. `to` is included in the range."""
    first = _integer(given, "from") if "from" in given else None
    return first, _integer(given, "to") + 1 if "to" in given else None


def _texts(given: Parameters, name: str) -> list[str]:
    texts = _json(given, name)
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise ConfigurationError(f"{name} must be a list of texts as JSON, got {given[name]!r}")
    return texts


def _object(given: Parameters, name: str) -> dict[str, Any]:
    found = _json(given, name)
    if not isinstance(found, dict):
        raise ConfigurationError(f"{name} must be an object of JSON, got {given[name]!r}")
    return found


def _json(given: Parameters, name: str) -> Any:
    text = _text(given, name)
    try:
        return json.loads(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be JSON, got {text!r}") from None
