"""One statistic of many tensors as a data frame, one column a tensor."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from ..errors import ConfigurationError, importing
from ..mode import ModeKeys
from ..statistics.definitions import parse_statistic
from ..statistics.derived import of_scalar
from ..suggestions import meant
from .name_filter import belongs_to, names_in
from .run_reader import RunReader

_ENGINES = ("pandas", "polars")
_QUERY = """
    select name, {step} as step, arg_min({value}, (length(worker), worker)) as value
    from {source}
    where {where} and {value} is not null
    group by all order by step
"""
_WHERE = "list_contains($names, name) and ($mode = 'GLOBAL' or mode = $mode) and ($worker is null or worker = $worker)"


def frame_of(
    reader: RunReader,
    pattern: str | Iterable[str],
    statistic: str | None,
    mode: ModeKeys,
    worker: str | None,
    engine: str,
) -> Any:
    """Return a statistic of the tensors whose names match; see `Trial.frame`."""
    from ..statistics.computed import from_raw  # on first use: the value of a tensor needs none of it

    if engine not in _ENGINES:
        raise ConfigurationError(f"engine must be one of {', '.join(_ENGINES)}, got {engine!r}")
    names = _matching(reader, names_in(pattern))
    parsed = None if statistic is None else parse_statistic(statistic)
    mode = ModeKeys.parse(mode)
    parameters = {"names": names, "mode": mode.name, "worker": None if worker is None else str(worker)}
    computed = from_raw(reader, [] if parsed is None else [parsed], _WHERE, parameters)
    value = "scalar" if parsed is None else f"coalesce({computed.expression(parsed)}, {of_scalar(parsed)})"
    step = "global_step" if mode is ModeKeys.GLOBAL else "mode_step"
    query = _QUERY.format(step=step, value=value, source=computed.source, where=_WHERE)
    rows = reader.sql(query, parameters | computed.parameters).fetchall()
    if not rows:
        if worker is not None:
            reader.rows_of(names, mode, worker)  # raises InvalidWorker
        what = "scalar value; pass a statistic, such as 'l2'" if statistic is None else f"saved {statistic}"
        raise ConfigurationError(f"none of {len(names)} matching tensors has a {what}")
    row_of = {step: row for row, step in enumerate(sorted({step for _, step, _ in rows}))}
    columns = {name: np.full(len(row_of), np.nan) for name in sorted({name for name, *_ in rows})}
    for name, step, number in rows:
        columns[name][row_of[step]] = number
    return _made(engine, list(row_of), columns)


def _matching(reader: RunReader, patterns: list[str]) -> list[str]:
    saved = reader.tensors(ModeKeys.GLOBAL)
    names = [n for n, of in saved if n in patterns or any(belongs_to(n, of, p) or fnmatchcase(n, p) for p in patterns)]
    if not names:
        hint = meant(patterns, (each for name, of in saved for each in (*of, name)))
        raise ConfigurationError(f"no tensor matches {', '.join(map(repr, patterns))}; `*` stands for any text{hint}")
    return list(dict.fromkeys(names))


def _made(engine: str, steps: list[int], columns: dict[str, Any]) -> Any:
    with importing(engine, "frame", "a data frame"):
        library = importlib.import_module(engine)
    if engine == "polars":
        # Polars has no index, and a tensor may have the name of the column of steps.
        key = "step"
        while key in columns:
            key = f"_{key}"
        return library.DataFrame({key: steps, **columns})
    return library.DataFrame(columns, index=library.Index(steps, name="step"))
