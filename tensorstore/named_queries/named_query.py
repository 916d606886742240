"""A named query: its text, its parameters, and its answer."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from tensortrial.queries import load, names

from ..engines.base import Answer
from ..engines.dialects import translate
from ..errors import InvalidQueryParameter, UnknownQuery
from ..read.runs import RunLocations, Runs, open_runs
from ..statistics.derived import expression
from .needs import Need, check
from .needs import from_raw as computed_from_raw

Value = str | int | float | bool

_PARAMETER = re.compile(
    r"\$(?P<name>\w+) (?P<type>text|integer|number|boolean|run|scalar)(?: (?P<default>'[^']*'|[^\s:]+))?: (?P<what>.+)"
)


# The placeholder in the SQL for a statistic that was saved or can be derived.
_STATISTIC = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a named query.

    Attributes:
        name: The name of the parameter.
        type: text, integer, number or boolean; run or scalar for the name of an existing run or scalar.
        default: The default; None if the parameter is required.
        meaning: The purpose of the parameter.
    """

    name: str
    type: str
    default: Value | None
    meaning: str

    def value(self, query: str, value: Any) -> Value:
        """Return a value in the type of this parameter. Raises InvalidQueryParameter."""
        try:
            return _VALUES[self.type](value)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise InvalidQueryParameter(query, self.name, f"must be {_TAKES[self.type]}, got {value!r}") from None

    def __str__(self) -> str:
        default = "" if self.default is None else f" = {_shown(self.default)}"
        return f"{self.name}: {self.type}{default}"


@dataclass(frozen=True)
class NamedQuery:
    """A question about runs, and the SELECT on the views of many runs that answers it.

    Attributes:
        name: The name of the query.
        question: The question, as a sentence.
        parameters: Its parameters.
        columns: The columns of the result, in words.
        sql: The SELECT, with `$name` for parameters.
        needs: The statistics that it reads.
    """

    name: str
    question: str
    parameters: tuple[Parameter, ...]
    columns: str
    sql: str
    needs: tuple[Need, ...] = ()

    def values(self, passed: Mapping[str, Any]) -> dict[str, Value]:
        """Return a value for each parameter.

        Args:
            passed: Values of some parameters, by name.

        Returns:
            These values, and the defaults of the other parameters.

        Raises:
            InvalidQueryParameter: A name is unknown, a value has a wrong type, or a parameter without a default is
                missing.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in passed:
            if name not in known:
                near = difflib.get_close_matches(name, [*known, "from_raw", "timeout"], 1) or list(known)
                raise InvalidQueryParameter(
                    self.name, name, f"is unknown; the nearest parameters are: {', '.join(near)}"
                )
        values: dict[str, Value] = {}
        for name, parameter in known.items():
            if name in passed:
                values[name] = parameter.value(self.name, passed[name])
            elif parameter.default is None:
                raise InvalidQueryParameter(self.name, name, f"is required: {parameter.meaning}")
            else:
                values[name] = parameter.default
        return values


def list_queries() -> dict[str, NamedQuery]:
    """Return all named queries.

    Returns:
        The queries, by name.
    """
    return dict(_queries())


def named_query(name: str) -> NamedQuery:
    """Return a named query.

    Args:
        name: Its name.

    Returns:
        The query.

    Raises:
        UnknownQuery: No query has this name; the error names the nearest ones.
    """
    queries = _queries()
    if not isinstance(name, str) or name not in queries:
        raise UnknownQuery(name, difflib.get_close_matches(str(name), queries, 3, 0.5) or list(queries))
    return queries[name]


def query(
    runs: Runs | RunLocations, name: str, /, *, from_raw: bool = False, timeout: float | None = None, **parameters: Any
) -> Answer:
    """Run a named query over runs. docs/queries.md lists the queries and their parameters.

    Args:
        runs: Open runs, or an argument of `open_runs`: a path, a pattern, a Trial, a list of these.
        name: The name of the query.
        from_raw: Compute statistics that were not saved from raw values, which takes longer.
        timeout: Seconds that the engine may run each time rows are fetched; None for no limit.
        **parameters: The parameters of the query.

    Returns:
        The rows, as `Runs.sql` returns them.

    Raises:
        UnknownQuery: No query has this name.
        InvalidQueryParameter: A parameter is unknown, missing, or has a wrong value.
        StatisticsNotSaved: The runs lack the statistics that the query needs.
        RunNotFound: No run can be opened.
        QueryTimeout: The query took longer than `timeout`.
    """
    named = named_query(name)
    values = named.values(parameters)
    opened = runs if isinstance(runs, Runs) else open_runs(runs)
    for parameter in named.parameters:
        if parameter.type in _NAMES:
            _check_name(opened, named, parameter, str(values[parameter.name]))
    if from_raw and named.needs:
        return opened.sql(*computed_from_raw(opened, named.sql, named.needs, values), timeout)
    check(opened, named.name, named.needs, values)
    return opened.sql(named.sql, values, timeout)


def _check_name(runs: Runs, named: NamedQuery, parameter: Parameter, value: str) -> None:
    view, column = _NAMES[parameter.type]
    if runs.sql(f"select 1 from {view} where {column} = $name limit 1", {"name": value}).fetchall():
        return
    known = [name for (name,) in runs.sql(f"select distinct {column} from {view} order by 1").fetchall()]
    # Nothing may have been saved yet.
    if known:
        near = difflib.get_close_matches(value, known, 3, 0.5) or known[:10]
        problem = f"names an unknown {parameter.type}, {value!r}; the nearest are: {', '.join(near)}"
        raise InvalidQueryParameter(named.name, parameter.name, problem)


def query_text(name: str, dialect: str = "duckdb", /, **parameters: Any) -> str:
    """Return the SQL of a named query for another engine, over the tables of `export`.

    It needs the extra `warehouse`.

    Args:
        name: The name of the query.
        dialect: duckdb, postgres, snowflake, bigquery, redshift, spark, or another dialect of sqlglot.
        **parameters: The parameters of the query, which are written into the SQL.

    Returns:
        One SELECT.

    Raises:
        UnknownQuery: No query has this name.
        InvalidQueryParameter: A parameter is unknown, missing, or has a wrong value.
        ConfigurationError: sqlglot does not know the dialect.
    """
    named = named_query(name)
    return translate(named.sql, dialect, named.values(parameters))


@cache
def _queries() -> dict[str, NamedQuery]:
    return {name: _parsed(name, load(f"named/{name}")) for name in names("named")}


def _parsed(name: str, text: str) -> NamedQuery:
    """Parse a file: a comment with the question, parameters and columns, an empty line, and one SELECT."""
    comment, _, sql = text.partition("\n\n")
    lines = [line.removeprefix("-- ") for line in comment.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith("Columns: "))
    parameters = _unfolded(lines[lines.index("Parameters:") + 1 : start])
    return NamedQuery(
        name,
        lines[0],
        tuple(_parameter(line) for line in parameters),
        " ".join(line.strip() for line in lines[start:] if not line.startswith("Needs: ")).removeprefix("Columns: "),
        _STATISTIC.sub(lambda found: expression(found[1]), sql.strip()),
        tuple(_need(text) for line in lines if line.startswith("Needs: ") for text in line[7:].rstrip(".").split(", ")),
    )


def _need(text: str) -> Need:
    statistic, _, tensors = text.partition(" of ")
    return Need(statistic, tensors.startswith("names "), tuple(tensors.removeprefix("names ").split(" or ")))


def _unfolded(lines: list[str]) -> list[str]:
    """Join further indented lines to the line that they continue."""
    whole: list[str] = []
    for line in lines:
        if line.startswith("  $"):
            whole.append(line.strip())
        else:
            whole[-1] += f" {line.strip()}"
    return whole


def _parameter(line: str) -> Parameter:
    found = _PARAMETER.fullmatch(line)
    assert found, line
    name, kind, default, what = found.group("name", "type", "default", "what")
    return Parameter(name, kind, None if default is None else _VALUES[kind](default.strip("'")), what)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise TypeError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    return {"true": True, "1": True, "false": False, "0": False}[_text(value).lower()]


_VALUES: dict[str, Callable[[Any], Value]] = {
    "text": _text,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "run": _text,
    "scalar": _text,
}
# The view and the column with existing names.
_NAMES = {"run": ("runs", "run"), "scalar": ("scalars", "name")}
_TAKES = {
    "text": "text",
    "run": "the name of a run",
    "scalar": "the name of a scalar",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
}


def _shown(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)
