"""The errors for missing or swapped arguments, which show how the command is written."""

from __future__ import annotations

import re
from collections.abc import Sequence

import click

from ..suggestions import near_names

SQL = re.compile(r"\s*(select|with|from|describe|summarize|show|pivot|values)\b.*\s", re.IGNORECASE | re.DOTALL)
TARGET = re.compile(r"(duckdb|parquet|csv|delta|iceberg|snowflake|bigquery|tensorboard):|postgres(ql)?://")


def runs_and_last(
    arguments: Sequence[str], command: str, name: str, pattern: re.Pattern[str]
) -> tuple[tuple[str, ...], str]:
    """Return the runs and the last argument of a command. It has a name, such as QUERY, and is known by a pattern.

    Raises UsageError for missing or swapped arguments.
    """
    *runs, last = arguments
    usage = f"write: tensortrial {command} RUN... {name}"
    if not runs:
        raise click.UsageError(f"missing argument {'RUN' if pattern.match(last) else name}; {usage}")
    wrong = next((run for run in runs if pattern.match(run)), None)
    if wrong is not None and not pattern.match(last):
        raise click.UsageError(f"{wrong!r} is a {name.lower()}, which comes last; {usage}")
    return tuple(runs), last


def runs_and_name(arguments: Sequence[str], known: Sequence[str]) -> tuple[str | None, tuple[str, ...]]:
    """Return the name of a query and the runs, which may be in either order. The name is None without arguments.

    Raises UsageError if neither the first nor the last of several arguments is a known name.
    """
    if not arguments:
        return None, ()
    first, last = arguments[0], arguments[-1]
    if first in known or len(arguments) == 1:
        return first, tuple(arguments[1:])
    if last not in known:
        near = [*near_names(first, known), *near_names(last, known)]
        meant = f"did you mean {near[0]!r}? " if near else ""
        raise click.UsageError(
            f"neither {first!r} nor {last!r} is a named query; {meant}"
            f"write: tensortrial query RUN... NAME, with one of: {', '.join(known)}"
        )
    return last, tuple(arguments[:-1])
