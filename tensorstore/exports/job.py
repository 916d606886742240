"""One export: the new rows of some runs, in some tables, to one target."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from itertools import groupby
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa

from ..config.reduction_config import boolean
from ..errors import ConfigurationError, ExportError, TensorTrialError
from ..format import arrow_arrays
from ..progress import progress_bar
from ..read.runs import RunLocations, Runs, open_runs
from ..snapshot.snapshot import repeated
from ..suggestions import near_names
from .run_summary import continued
from .source import PART_ROWS, Since, Source
from .tables import DEFAULT, GROWING, OF_STEPS, REPLACED, SCHEMAS, with_run
from .target import Held, Part, Position, Replacement, Target, open_target

logger = logging.getLogger(__name__)

_TOGETHER = 1000
"""The most parts, or replacements of small tables, that are written in one transaction."""
_NO_ROWS = arrow_arrays.table(pa.schema([("run", pa.string())]), [])


@dataclass(frozen=True)
class Export:
    """The result of an export."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """The number of new rows of each table.

    A small table is replaced as a whole: its number is that of the rows of all runs whose rows have changed.
    """
    damaged: Mapping[str, TensorTrialError] = field(default_factory=dict)
    """The errors of runs and files that could not be read, by URL. The rest was exported."""
    pruned: tuple[str, ...] = ()
    """The names of the runs that `prune` deleted from the target."""
    snapshots: Mapping[str, str] = field(default_factory=dict)
    """The id of the snapshot of each run that was exported, by the name of the run in the target."""


def export(
    runs: Runs | RunLocations,
    target: str | os.PathLike[str],
    *,
    tables: Iterable[str] | None = None,
    since: Since = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    prune: bool = False,
    **options: Any,
) -> Export:
    """Export runs to `target`: a database, a folder of files, or a table format; docs/warehouse.md lists them.

    Every table has the column `run` first, and then the columns of the view of the same name.

    Another export of the same run adds its new rows: the target stores the last step of each table, worker and run in
    the same transaction as the rows. So the next export completes an interrupted one, a running job can be exported any
    number of times, and compaction in between changes nothing. If the run went back to a checkpoint in between, rows
    that no longer count are replaced.

    Args:
        runs: Runs, or an argument of `open_runs`: a folder, a pattern, a Trial, or a list of these.
        target: The URL of the target, such as `duckdb:runs.duckdb`.
        tables: Some of runs, run_summary, collections, steps, tensors, scalars, reductions, findings, tensor_values
            (raw bytes). By default all but the last two.
        since: Leave out steps before this global step, or saved before this time; in UTC if it has no time zone.
        storage_options: The options of the runs' storage.
        progress: Show a progress bar on a terminal.
        prune: Delete runs that are not among `runs` from all tables of the target. Nothing is deleted if a run cannot
            be read, because it may be one of those in the target.
        **options: The options of the target.

    Returns:
        The numbers of written rows, the errors of unreadable files, and the names of pruned runs.

    Raises:
        ExportError: The target cannot be reached or refuses the rows.
        TableMismatch: A table exists with other columns.
        ConfigurationError: An unknown table or option, a wrong type, or a target among the files of a run.
        RunNotFound: There is no run.
    """
    wanted = _checked(tables)
    if not isinstance(target, str | os.PathLike) or not (url := os.fspath(target)):
        raise ConfigurationError(f"target must be a URL such as duckdb:runs.duckdb, got {target!r}")
    if isinstance(since, bool) or not isinstance(since, Integral | datetime | None):
        raise ConfigurationError(f"since must be a global step or a datetime, got {since!r}")
    if not isinstance(runs, Runs):
        with open_runs(runs, storage_options=storage_options) as opened:
            return export(opened, target, tables=wanted, since=since, progress=progress, prune=prune, **options)
    urls = [run.storage.url for run in runs.all]
    with closing(open_target(url, options, urls)) as opened_target:
        return _Job(runs, opened_target, wanted, since).run(boolean("progress", progress), boolean("prune", prune))


def _checked(tables: Iterable[str] | None) -> list[str]:
    if tables is not None and not np.iterable(tables):
        raise ConfigurationError(f"tables must be names of tables, got {tables!r}")
    wanted = list(DEFAULT if tables is None else [tables] if isinstance(tables, str) else tables)
    for table in wanted:
        if not isinstance(table, str) or table not in SCHEMAS:
            near = near_names(str(table), SCHEMAS)
            hint = f"did you mean {' or '.join(near)}?" if near else f"the tables are {', '.join(sorted(SCHEMAS))}"
            raise ConfigurationError(f"unknown table {table!r}; {hint}")
    return wanted


class _Job:
    """One call of `export`."""

    def __init__(self, runs: Runs, target: Target, tables: Sequence[str], since: Since) -> None:
        self._runs, self._target, self._since = runs, target, since
        self._tables = [table for table in tables if table not in target.derives]
        needed = {"tensors"} if set(tables) & target.derives else set()
        self._tables += sorted(needed - set(self._tables))
        self._rows = dict.fromkeys(self._tables, 0)

    def run(self, progress: bool, prune: bool) -> Export:
        self._target.prepare({table: self._target.schema_of(SCHEMAS[table]) for table in self._tables})
        sources = [Source(run.name, run.storage, run.snapshot) for run in self._runs.all]
        held = self._held(sources)
        growing = [table for table in self._tables if table in GROWING]
        total = sum(source.rows(table, held.get(source.run)) for source in sources for table in growing)
        for table in self._tables:
            if table in REPLACED:
                self._replace(table, sources, held)
        with progress_bar(total, progress and total > 0, "export", "row") as advance:
            for table in growing:
                self._write(table, sources, held, advance)
        damaged = dict(self._runs.damaged)  # also of files whose rows an earlier export had to leave out
        for source in sources:
            damaged.update(source.damaged)
        pruned = self._prune(sources) if prune else ()
        return Export(self._rows, damaged, pruned, {source.run: source.snapshot for source in sources})

    def _write(
        self, table: str, sources: Sequence[Source], held: Mapping[str, Held], advance: Callable[[float], object]
    ) -> None:
        def write() -> None:
            parts = (part for source in sources for part in source.parts(table, held.get(source.run), self._since))
            for together in _together(parts):
                self._write_parts(together)
                advance(sum(part.index_rows for part in together))

        def refresh() -> None:
            """Find the files that replaced others, which were compacted after they were listed."""
            nonlocal held
            for source in sources:
                source.refresh()
            held = self._target.held([source.run for source in sources])

        try:
            repeated(write, refresh)
        except FileNotFoundError as exc:
            names = ", ".join(source.run for source in sources[:3])
            raise ExportError(names, f"files were compacted while they were read: {exc}; export again") from exc

    def _write_parts(self, parts: Sequence[Part]) -> None:
        schema = self._target.schema_of(parts[0].schema)
        parts = [replace(part, schema=schema) for part in parts]
        try:
            self._target.write(parts)
        except Exception:
            for part in parts:
                if part.failure is not None:
                    raise part.failure from None
            raise
        self._rows[parts[0].table] += sum(part.count for part in parts)

    def _held(self, sources: Sequence[Source]) -> dict[str, Held]:
        """Return the target's content of each run, by the run's name in the target."""
        held = self._target.held([source.run for source in sources])
        strangers = [source for source in sources if not source.is_in(held.get(source.run))]
        if strangers:
            known = self._target.names() - {(source.identity, source.run) for source in sources}
            for source in strangers:
                self._rename(source, known)
            held |= self._target.held([source.run for source in strangers])
            for source in strangers:
                if source.run in held and not source.is_in(held[source.run]):
                    raise ExportError(
                        source.run,
                        "the target holds another run of this name: rename the run's folder, or export the folder "
                        "above it",
                    )
        return held

    def _rename(self, source: Source, known: set[tuple[str, str]]) -> None:
        """Keep the name that the run has in the target.

        The run's own name depends on the other opened runs, and its rows must not be exported under two names.
        """
        for identity, name in sorted(known):
            if identity == source.identity:
                known.remove((identity, name))
                source.run = name
                return

    def _replace(self, table: str, sources: Sequence[Source], held: Mapping[str, Held]) -> None:
        """Replace the rows of a small table for each run whose rows differ from those in the target."""
        schema = REPLACED[table]
        exported = {run: each.digests.get(Position(table, ""), {}).get(-1) for run, each in held.items()}
        condition, parameters, known = "", dict[str, Any](), dict[str, pa.Table]()
        if table in OF_STEPS:
            sources = [source for source in sources if exported.get(source.run) != source.digest]
            known = self._continued(table, sources, held)
            names = [each.own_name for each in sources if each.run not in known]
            condition, parameters = "where list_contains($runs, run)", {"runs": names}
        query = f"select * from {table} {condition} order by all"
        rows = self._runs.sql(query, parameters).to_arrow_table() if len(known) < len(sources) else _NO_ROWS
        of_run = _slices(rows["run"].to_pylist())
        changed = []
        for source in sources:
            columns = known.get(source.run)
            if columns is None:
                columns = rows.slice(*of_run.get(source.own_name, (0, 0))).drop_columns(["run"])
            found = pa.Table.from_batches(with_run(source.run, columns, schema), schema)
            digest = source.digest if table in OF_STEPS else _digest(found)
            if exported.get(source.run) != digest:
                self._rows[table] += len(found)
                changed.append(Replacement(source.run, source.identity, found, digest))
        for begin in range(0, len(changed), _TOGETHER):
            self._target.replace(table, changed[begin : begin + _TOGETHER])

    def _continued(self, table: str, sources: Sequence[Source], held: Mapping[str, Held]) -> dict[str, pa.Table]:
        """Return the rows of the runs that have only grown, by the run's name in the target."""
        found = {
            source.run: continued(source, held.get(source.run), partial(self._target.rows, table, source.run))
            for source in sources
        }
        return {run: rows for run, rows in found.items() if rows is not None}

    def _prune(self, sources: Sequence[Source]) -> tuple[str, ...]:
        """Delete the runs of the target that this export does not have, and return their names."""
        opened = tuple(f"{run.storage.url}/" for run in self._runs.all)
        if unread := [path for path in self._runs.damaged if not path.startswith(opened)]:
            logger.warning("nothing is pruned, because %s cannot be read and may be a run of the target", unread[0])
            return ()
        gone = sorted(self._target.names() - {(source.identity, source.run) for source in sources})
        for _, name in gone:
            self._target.remove(name)
        return tuple(name for _, name in gone)


def _together(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield lists of parts of one table that are written together: many small ones, or one large one."""
    held: list[Part] = []
    for part in parts:
        held.append(part)
        if len(held) == _TOGETHER or sum(each.index_rows for each in held) >= PART_ROWS:
            yield held
            held = []
    if held:
        yield held


def _digest(rows: pa.Table) -> str:
    # pyarrow imports pandas to convert times to Python.
    columns = [column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in rows.columns]
    return hashlib.blake2b(repr([column.to_pylist() for column in columns]).encode(), digest_size=8).hexdigest()[:15]


def _slices(runs: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the first row and the number of rows of each run. Rows of a run are contiguous."""
    found, begin = {}, 0
    for run, group in groupby(runs):
        count = len(list(group))
        found[run], begin = (begin, count), begin + count
    return found
