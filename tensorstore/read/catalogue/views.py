"""The public views of one run or of many, each brought up to date when a query reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from ...engines.base import Answer, Database, FilesView, RunFile, repeated
from ...format.schema import FINDINGS_SCHEMA, INDEX_SCHEMA, TENSORS_SCHEMA
from ...snapshot.step_range import StepRange

OF_ONE_RUN = (
    "tensors",
    "reductions",
    "merged_reductions",
    "scalars",
    "steps",
    "collections",
    "findings",
    "tensor_values",
    "superseded",
)
OF_MANY_RUNS = ("runs", *OF_ONE_RUN)

# What each view is made of: views over files, and groups of small tables.
_SOURCES = {
    "collections": ("collections",),
    "findings": ("findings",),
    "merged_reductions": ("tensors",),
    "reductions": ("tensors",),
    "runs": ("runs", "tensors"),
    "scalars": ("tensors",),
    "steps": ("steps",),
    "superseded": ("superseded", "tensors"),
    "tensor_values": ("tensor_values",),
    "tensors": ("tensors",),
}
_OVER_FILES = {
    "tensors": FilesView("tensors", INDEX_SCHEMA, "saved_at"),
    "tensor_values": FilesView("tensor_values", TENSORS_SCHEMA),
    "findings": FilesView("findings", FINDINGS_SCHEMA, "found_at", "step"),
    "superseded": FilesView("superseded", INDEX_SCHEMA, "saved_at"),
}

FILES_OF_TENSORS = "tensors"
"""The source of the view `tensors` and of those that are made of it: index files."""


class _Source(NamedTuple):
    """Rows that views are made of."""

    version: Callable[[], object]
    update: Callable[[], None]


class Views:
    """The public views of one run, or of `many`, which have the column `run` and the view `runs` in addition.

    `range_steps` (a, b) leaves out every global step outside a <= step < b.
    """

    def __init__(self, database: Database, many: bool = False, range_steps: StepRange | None = None) -> None:
        self._database = database
        self._names = OF_MANY_RUNS if many else OF_ONE_RUN
        self._with_run = many
        self._first, self._end = range_steps or (None, None)
        self._sources: dict[str, _Source] = {}
        self._versions: dict[str, object] = {}
        self._made: dict[str, list[object]] = {}

    def add_table(self, source: str, version: Callable[[], object], rows: Callable[[], pa.Table]) -> None:
        """Add a small table that views are made of.

        Args:
            source: `steps`, `collections` or `runs`.
            version: Returns what changes whenever the rows may be others.
            rows: Returns the rows.
        """
        self._sources[source] = _Source(version, lambda: self._database.put(source, rows()))

    def add_files(
        self,
        source: str,
        version: Callable[[], object],
        files: Callable[[], Sequence[RunFile]],
        left_out: Callable[[], pa.Table | None] = lambda: None,
    ) -> None:
        """Add files that views are made of.

        Args:
            source: `tensors`, `tensor_values`, `findings` or `superseded`.
            version: Returns what changes whenever the files may be others.
            files: Returns the readable files.
            left_out: Returns the rows that do not count.
        """

        def update() -> None:
            found = files()  # first: files that were compacted since may hold what was saved again
            view = replace(_OVER_FILES[source], first=self._first, end=self._end, left_out=left_out())
            self._database.make_files_view(view, found)

        self._sources[source] = _Source(version, update)

    def sql(
        self,
        query: str,
        parameters: dict[str, Any] | None = None,
        timeout: float | None = None,
        find_compacted: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Answer:
        """Return the rows of a user's query on the views; see `Database.parse` and `Database.run`.

        `find_compacted` is called when a file is missing while the query reads it. It finds the files that replace
        others, and returns a context in which the views are made of them.
        """
        parsed = self._database.parse(query, self._names)

        def recovered() -> bool:
            with find_compacted():
                return True

        repeated(lambda: self._update(parsed.views), recovered)
        made_of = self._made_of(parsed.views)

        def remade() -> bool:
            nonlocal made_of
            with find_compacted():
                self._update(parsed.views)
                before, made_of = made_of, self._made_of(parsed.views)
                return made_of != before

        return self._database.run(parsed, parameters, timeout, remade)

    def _made_of(self, views: Iterable[str]) -> list[object]:
        """Return what differs once a view is made of other files or tables."""
        return [self._made[view] for view in sorted(views)]

    def _update(self, views: Iterable[str]) -> None:
        """Make the views that a query reads, unless what they are made of is as it was."""
        for view in sorted(views):
            versions = [self._updated(source) for source in _SOURCES[view]]
            if self._made.get(view) != versions:
                self._database.make_view(view, self._with_run)
                self._made[view] = versions

    def _updated(self, source: str) -> object:
        version, update = self._sources[source]
        now = version()
        if source not in self._versions or self._versions[source] != now:
            update()
            self._versions[source] = now
        return now
