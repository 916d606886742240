"""The errors for missing, swapped or mistyped words, which show how the command is written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

from ..suggestions import near_names
from ..visible import visible

SQL = re.compile(r"\s*(select|with|from|describe|summarize|show|pivot|values)\b.*\s", re.IGNORECASE | re.DOTALL)
TARGET = re.compile(r"(duckdb|parquet|csv|delta|iceberg|snowflake|bigquery|tensorboard):|postgres(ql)?://")


class SuggestingGroup(click.Group):
    """A group of commands whose error for an unknown command names a similar one."""

    noun = "command"
    aliases: ClassVar[Mapping[str, str]] = {}
    """The commands by their names in other programs."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if not name.startswith("-") and name not in known:
            near = [self.aliases[name]] if name in self.aliases else near_names(name, known, 1)
            meant = f"; did you mean {near[0]!r}?" if near else self.without_similar(known)
            ctx.fail(f"no such {self.noun}: {visible(name)!r}{meant}")
        return super().resolve_command(ctx, args)

    def without_similar(self, known: Sequence[str]) -> str:
        """Return a clause for a name that is similar to no known one."""
        return ""


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
