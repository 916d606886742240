"""One export: the new rows of some runs, in some tables, to one target."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from ..errors import ConfigurationError, ExportError, TensorTrialError
from ..progress import progress_bar
from ..read.runs import RunLocations, Runs, open_runs
from .source import Since, Source
from .tables import DEFAULT, GROWING, REPLACED, SCHEMAS, with_run
from .target import Held, Part, Target, open_target

_ATTEMPTS = 5
"""How often the files may be compacted away before they are read."""


@dataclass(frozen=True)
class Export:
    """The result of an export."""

    rows: Mapping[str, int] = field(default_factory=dict)
    """The number of rows written to each table. Small tables are written whole each time."""
    damaged: Mapping[str, TensorTrialError] = field(default_factory=dict)
    """Runs and files that could not be read, by their URL, and why. The rest was exported."""


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

    Every table has the column `run` first, and then the columns of the view of the same name.

    Exporting again adds what is new: the target keeps the last step of each table, worker and run, in the same
    transaction as the rows. So an export that was interrupted is finished by the next, a run that is still written can
    be exported any number of times, and compacting it in between changes nothing.

    Args:
        runs: What `open_runs` returns or accepts: a folder, a pattern, a Trial, or a list of those.
        target: The URL of the target, such as `duckdb:runs.duckdb`.
        tables: Some of runs, collections, steps, tensors, scalars, reductions, findings, tensor_values (raw bytes). By
            default all but the last two.
        since: Leave out steps before this global step, or saved before this time.
        storage_options: The options of the runs' storage.
        progress: Show a progress bar on a terminal.
        **options: The options of the target.

    Returns:
        How many rows were written, and what could not be read.

    Raises:
        ExportError: The target cannot be reached or refuses the rows.
        TableMismatch: A table exists with other columns.
        ConfigurationError: An unknown table or option, or a `since` of another type.
        RunNotFound: There is no run.
    """
    wanted = _checked(tables)
    _check_since(since)
    opened = _opened(runs, storage_options)
    opened_target = open_target(os.fspath(target), options)
    try:
        return _Job(opened, opened_target, wanted, since).run(progress)
    finally:
        opened_target.close()


def _checked(tables: Iterable[str] | None) -> list[str]:
    if not isinstance(tables, Iterable | None):
        raise ConfigurationError(f"tables must be names of tables, got {tables!r}")
    wanted = list(DEFAULT if tables is None else [tables] if isinstance(tables, str) else tables)
    for table in wanted:
        if table not in SCHEMAS:
            near = difflib.get_close_matches(table, SCHEMAS, 2, 0.4) or sorted(SCHEMAS)
            raise ConfigurationError(f"unknown table {table!r}; did you mean {', '.join(near)}?")
    return wanted


def _check_since(since: object) -> None:
    if isinstance(since, bool) or not isinstance(since, int | datetime | None):
        raise ConfigurationError(f"since must be a global step or a datetime, got {since!r}")


def _opened(runs: Runs | RunLocations, storage_options: Mapping[str, Any] | None) -> Runs:
    return runs if isinstance(runs, Runs) else open_runs(runs, storage_options=storage_options)


class _Job:
    """One call of `export`."""

    def __init__(self, runs: Runs, target: Target, tables: Sequence[str], since: Since) -> None:
        self._runs, self._target, self._since = runs, target, since
        self._tables = [table for table in tables if table not in target.derives]
        needed = {"tensors"} if set(tables) & target.derives else set()
        self._tables += sorted(needed - set(self._tables))
        self._rows = dict.fromkeys(self._tables, 0)

    def run(self, progress: bool) -> Export:
        self._target.prepare({table: self._target.schema_of(SCHEMAS[table]) for table in self._tables})
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
                # It was compacted after it was listed: its rows are in another file now.
                source.refresh()
                held = self._target.held(source.run)
        raise ExportError(source.run, "its files were compacted again and again while they were read: export it again")

    def _write_part(self, part: Part) -> int:
        try:
            return self._target.write(replace(part, schema=self._target.schema_of(part.schema)))
        except Exception:
            if part.failures:
                raise part.failures[0] from None
            raise

    def _held(self, sources: Sequence[Source]) -> dict[str, Held | None]:
        """Return what the target holds of each run, by the run's name in the target."""
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
                        "the target holds another run of this name: rename the run's folder, or export the folder "
                        "above it",
                    )
        return held

    def _rename(self, source: Source, known: set[tuple[str, str]]) -> None:
        """Keep the name that the run has in the target.

        Its own name depends on the runs that it is opened with, and its rows must not be exported twice.
        """
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
