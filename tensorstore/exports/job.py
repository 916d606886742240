"""One export: what is new of some runs, in some tables, to one target."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from ..errors import ConfigurationError, ExportError, TensorTrialError
from ..progress import progress_bar
from ..read.runs import RunLocations, Runs, open_runs
from .source import Since, Source
from .tables import DEFAULT, GROWING, REPLACED, SCHEMAS, with_run
from .target import Held, Part, Target, open_target

# How often files may be compacted away before they are read.
_ATTEMPTS = 5


@dataclass(frozen=True)
class Export:
    """What an export did."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows each table was given; of the small ones, which are given anew each time, how many there are."""
    damaged: Mapping[str, TensorTrialError] = field(default_factory=dict)
    """Runs and files that could not be read, by their place, and why; the rest was exported."""


def export(
    runs: Runs | RunLocations,
    target: str | os.PathLike[str],
    *,
    tables: Iterable[str] | None = None,
    since: Since = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    **options: Any,
) -> Export:
    """Export runs to `target`: a database, a folder of files, or a table format; docs/warehouse.md lists them.

    `runs` are what `open_runs` gave, or what it takes: a folder, a pattern, a Trial, a list of those. `tables` are some
    of runs, collections, steps, tensors, scalars, reductions, findings, tensor_values (raw bytes); without it, all but
    the last two. Every table has the column `run` first, and the columns of the view of the same name.

    Exporting again moves what is new since: each table notes up to which step it holds each worker of each run, in the
    same transaction as the rows. So an export that was interrupted is finished by the next, a run that is still
    written can be exported as often as one likes, and compacting it in between changes nothing. `since` leaves out
    steps before a global step, or saved before a time. `options` go to the target.

    Raises ExportError for a target that cannot be reached, TableMismatch for a table that is there with other columns,
    ConfigurationError for a table that there is not and a `since` that is neither, RunNotFound.
    """
    wanted = _checked(tables)
    _check_since(since)
    opened = _opened(runs, storage_options)
    place = open_target(os.fspath(target), options)
    try:
        return _Job(opened, place, wanted, since).run(progress)
    finally:
        place.close()


def _checked(tables: Iterable[str] | None) -> list[str]:
    if not isinstance(tables, Iterable | None):
        raise ConfigurationError(f"tables are names, and not {tables!r}")
    wanted = list(DEFAULT if tables is None else [tables] if isinstance(tables, str) else tables)
    for table in wanted:
        if table not in SCHEMAS:
            near = difflib.get_close_matches(table, SCHEMAS, 2, 0.4) or sorted(SCHEMAS)
            raise ConfigurationError(f"there is no table {table!r} to export; there is {', '.join(near)}")
    return wanted


def _check_since(since: object) -> None:
    if isinstance(since, bool) or not isinstance(since, int | datetime | None):
        raise ConfigurationError(f"since takes a global step, or a datetime, and not {since!r}")


def _opened(runs: Runs | RunLocations, storage_options: Mapping[str, Any] | None) -> Runs:
    return runs if isinstance(runs, Runs) else open_runs(runs, storage_options=storage_options)


class _Job:
    def __init__(self, runs: Runs, target: Target, tables: Sequence[str], since: Since) -> None:
        self._runs, self._target, self._since = runs, target, since
        self._tables = [table for table in tables if table not in target.derives]
        needed = {"tensors"} if set(tables) & target.derives else set()
        self._tables += sorted(needed - set(self._tables))
        self._rows = dict.fromkeys(self._tables, 0)

    def run(self, progress: bool) -> Export:
        self._target.prepare({table: SCHEMAS[table] for table in self._tables})
        damaged = dict(self._runs.damaged)
        sources = [Source(run.name, run.storage, [info.worker for info in run.workers.infos]) for run in self._runs.all]
        held = self._held(sources)
        growing = [table for table in self._tables if table in GROWING]
        total = sum(source.rows(table, held[source.run]) for source in sources for table in growing)
        with progress_bar(total, progress and total > 0, "export", "row") as advance:
            for source in sources:
                self._replace(source)
                for table in growing:
                    self._write(table, source, held[source.run])
                    advance(source.rows(table, held[source.run]))
                damaged.update(source.damaged)
        return Export(self._rows, damaged)

    def _write(self, table: str, source: Source, held: Held | None) -> None:
        for _ in range(_ATTEMPTS):
            try:
                for part in source.parts(table, held, self._since):
                    self._rows[table] += self._write_part(part)
                return
            except FileNotFoundError:
                # Compacted since it was listed: its rows are in another file now.
                source.refresh()
                held = self._target.held(source.run)
        raise ExportError(source.run, "its files were compacted again and again while they were read: export it again")

    def _write_part(self, part: Part) -> int:
        try:
            return self._target.write(part)
        except Exception:
            if part.failures:
                raise part.failures[0] from None
            raise

    def _held(self, sources: Sequence[Source]) -> dict[str, Held | None]:
        """What the target holds of each run, by the name that the run has there."""
        held = {source.run: self._target.held(source.run) for source in sources}
        strangers = [source for source in sources if not source.is_what(held[source.run])]
        if strangers:
            known = self._target.names() - {(source.identity, source.run) for source in sources}
            for source in strangers:
                self._rename(source, known)
                held[source.run] = self._target.held(source.run)
                if held[source.run] is not None and not source.is_what(held[source.run]):
                    raise ExportError(
                        source.run,
                        "the target holds another run of this name: export it under another, by renaming its folder, "
                        "or by naming the folder above it",
                    )
        return held

    def _rename(self, source: Source, known: set[tuple[str, str]]) -> None:
        """Call a run what it was called before. Its own name depends on the runs that it is opened with, and its rows
        shall not be there twice."""
        for identity, name in sorted(known):
            if identity == source.identity:
                known.remove((identity, name))
                source.run = name
                return

    def _replace(self, source: Source) -> None:
        for table in self._tables:
            if table in REPLACED:
                schema = REPLACED[table]
                found = self._runs.sql(f"select * from {table} where run = $run", {"run": source.own_name})
                columns = found.to_arrow_table().drop_columns(["run"])
                rows = pa.Table.from_batches(with_run(source.run, columns, schema), schema)
                self._target.replace(table, source.run, rows)
                self._rows[table] += len(rows)
