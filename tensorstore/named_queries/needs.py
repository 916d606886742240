"""The statistics that a named query needs: a check that runs have them, and their computation from raw values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..engines.duckdb import DuckDBDatabase
from ..errors import ConfigurationError, StatisticsNotSaved
from ..read.runs import Runs
from ..read.trial import run_reader_of
from ..statistics.derived import expression
from ..statistics.single import statistics

_ROWS = 64
"""The number of raw values that are read at once."""
_KEY = ("run", "name", "worker", "global_step")


@dataclass(frozen=True)
class Need:
    """A statistic of the tensors in some collections, or with names like a pattern."""

    statistic: str
    of_names: bool
    words: tuple[str, ...]
    """The collections, or the pattern; `$name` is a parameter of the query."""

    def selection(self, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return a condition on the view `tensors`, and its parameters."""
        words = [values[word[1:]] if word.startswith("$") else word for word in self.words]
        named = {f"word{number}": word for number, word in enumerate(words)}
        test = "name like ${}" if self.of_names else "list_contains(collections, ${})"
        condition = f"({' or '.join(test.format(name) for name in named)})"
        if "runs" in values:
            return f"run like $runs and {condition}", {**named, "runs": values["runs"]}
        return condition, named

    def tensors(self, values: Mapping[str, Any]) -> str:
        """Return the tensors that the query reads, in words."""
        words = [repr(values[word[1:]] if word.startswith("$") else word) for word in self.words]
        return f"tensors with names like {words[0]}" if self.of_names else f"tensors of {' or '.join(words)}"


def check(runs: Runs, query: str, needs: Sequence[Need], values: Mapping[str, Any]) -> None:
    """Raise StatisticsNotSaved if no row has a needed statistic, because an empty result would be meaningless."""
    for need in needs:
        condition, parameters = need.selection(values)
        ((rows, met, raw),) = runs.sql(
            f"select count(*), count({expression(need.statistic)}), count(coalesce(chunk, cast(scalar as varchar))) "
            f"from tensors where {condition}",
            parameters,
        ).fetchall()
        if not rows and not runs.sql("select 1 from tensors limit 1").fetchall():
            return  # nothing was saved yet
        if not met:
            raise StatisticsNotSaved(query, need.statistic, need.tensors(values), rows, raw)


def from_raw(runs: Runs, sql: str, needs: Sequence[Need], values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the query and its parameters, with statistics that were not saved computed from raw values.

    Raises:
        ConfigurationError: The engine is not DuckDB.
    """
    if not isinstance(runs.queries.database, DuckDBDatabase):
        raise ConfigurationError("from_raw computes for queries on DuckDB; open the runs without engine=")
    names = tuple(dict.fromkeys(need.statistic for need in needs))
    found: dict[tuple[Any, ...], dict[str, float]] = {}
    for need in needs:
        for key, computed in _computed(runs, _lacking(runs, need, values), need.statistic):
            found.setdefault(key, {}).update(computed)
    columns: dict[str, list[Any]] = {f"raw_{name}": [] for name in _KEY}
    columns |= {f"raw_{name}": list(column) for name, column in zip(_KEY, zip(*found, strict=True), strict=False)}
    columns |= {f"raw_{name}": [of.get(name) for of in found.values()] for name in names}
    return _spliced(sql, names), {**values, **columns}


def _spliced(sql: str, names: Sequence[str]) -> str:
    types = dict.fromkeys(("global_step",), "bigint") | dict.fromkeys(names, "double")
    lists = ", ".join(
        f'unnest(cast($raw_{name} as {types.get(name, "varchar")}[])) as "{name}"' for name in (*_KEY, *names)
    )
    replaced = ", ".join(f'coalesce(saved."{name}", computed."{name}") as "{name}"' for name in names)
    tensors = (
        f"computed as (select {lists}), tensors as (select saved.* replace ({replaced}) "
        f"from tensors as saved left join computed using ({', '.join(_KEY)}))"
    )
    return f"with {tensors}, {sql[5:]}" if sql.startswith("with ") else f"with {tensors}\n{sql}"


def _lacking(runs: Runs, need: Need, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the keys of rows with a raw value but without the statistic, by run."""
    condition, parameters = need.selection(values)
    return runs.sql(
        f"select run, name, worker, global_step from tensors where {condition} "
        f"and {expression(need.statistic)} is null and (scalar is not null or chunk is not null) "
        "order by run, global_step, name, worker",
        parameters,
    ).fetchall()


def _computed(
    runs: Runs, keys: Sequence[tuple[Any, ...]], name: str
) -> Iterator[tuple[tuple[Any, ...], dict[str, float]]]:
    for run, inside in groupby(keys, lambda key: key[0]):
        rows = list(inside)
        with runs.trial(run) as trial:
            for first in range(0, len(rows), _ROWS):
                some = rows[first : first + _ROWS]
                saved = [run_reader_of(trial).saved_row(tensor, step, worker) for _, tensor, worker, step in some]
                there = [(key, row) for key, row in zip(some, saved, strict=True) if row is not None]
                read = run_reader_of(trial).read([row for _, row in there])
                for (key, _), value in zip(there, read, strict=True):
                    yield key, statistics(value, (name,))
