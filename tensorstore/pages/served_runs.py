"""The runs of a page. The page searches for them repeatedly, and opens each one when a view needs it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict
from typing import Any, TypeVar

from ..engines.base import Rows
from ..errors import ConfigurationError, CorruptFile, RunNotFound, TensorTrialError
from ..format.schema import END, FINDINGS, INDEX, RUN_FILE
from ..maintenance.notes import change_notes, notes_of
from ..parallel import in_threads
from ..read.run_reader import RunReader
from ..read.runs import RunLocations, Runs, RunSearch, nothing_opened, short_names
from ..read.trial import Trial, run_reader_of
from ..snapshot.snapshot import run_info
from ..storage.open import Storage
from . import overview
from .open_run import OpenRun
from .query_process import QueryProcesses

_T = TypeVar("_T")
_PARALLEL = 8
# The seconds between two searches for new and deleted runs.
_SEARCH_SECONDS, _SEARCH_SHARE = 5.0, 20
_Found = dict[str, Storage]


class ServedRuns:
    """The runs of a page. Safe to use from several threads.

    A Trial has a database of its own. So a run has a Trial only after a view has shown it. Before that the page knows
    its outline, which is read for all such runs together.

    Args:
        runs: Open runs, or an argument of `open_runs`.
        storage_options: Options for fsspec.

    Attributes:
        damaged: The errors of runs that could not be opened, by path.
        queries: The processes that run users' SQL.

    Raises:
        RunNotFound: No run can be opened.
        ConfigurationError: The list is empty.
    """

    def __init__(self, runs: Runs | RunLocations, storage_options: Mapping[str, Any] | None = None) -> None:
        self._options = storage_options
        self._locations = _locations(runs)
        self._opening, self._searching, self._outlining = threading.Lock(), threading.RLock(), threading.Lock()
        self._storages = _Found()
        self._opened: dict[str, OpenRun] = {}
        self._listings: dict[str, object] = {}
        self._states: dict[str, object] = {}
        self._outlines: dict[str, tuple[object, dict[str, Any]]] = {}
        self._deleted: dict[str, str] = {}
        self._search_at = 0.0
        self._together: tuple[list[str], list[object], Runs, dict[str, str]] | None = None
        self._readers: dict[str, RunReader] = {}
        self._together_lock = threading.Lock()
        self.damaged: dict[str, TensorTrialError] = {}
        self.queries = QueryProcesses()
        self.search()
        if not self._storages:
            raise self._nothing()

    @property
    def names(self) -> list[str]:
        """The names of the runs, sorted."""
        return sorted(self._storages)

    @property
    def storages(self) -> list[Storage]:
        """The runs, by name."""
        return [storage for _, storage in sorted(self._storages.items())]

    @property
    def opened(self) -> list[OpenRun]:
        """The runs that a view has shown, by name."""
        known = {storage.url for storage in self._storages.values()}
        return sorted((run for url, run in list(self._opened.items()) if url in known), key=lambda run: run.name)

    def run(self, name: str) -> OpenRun:
        """Return one of the runs, and open it if necessary.

        Raises:
            ConfigurationError: No run has this name.
        """
        storage = self._storages.get(name)
        if storage is None:
            raise self._unknown(name)
        try:
            with self._opening:
                if storage.url not in self._opened:
                    self._opened[storage.url] = OpenRun(Trial(storage, run_info(storage, has_begun=False), name))
                return self._opened[storage.url]
        except (TensorTrialError, FileNotFoundError):
            self.search()
            if name in self._storages:
                raise
        return self.run(name)  # the error says that the run was deleted

    def _unknown(self, name: str) -> ConfigurationError:
        why = "was deleted" if name in self._deleted.values() else "is unknown"
        others = f"the runs are: {', '.join(self.names[:20])}" if self._storages else "no run is left"
        return ConfigurationError(f"the run {name!r} {why}; {others}")

    def of_each(self, names: Sequence[str], work: Callable[[OpenRun], _T]) -> list[_T]:
        """Return the results of `work` for some of the runs, without deleted ones."""
        found = []
        for name in names:
            try:
                found.append(work(self.run(name)))
            except (TensorTrialError, FileNotFoundError):
                self.search()
                if name not in self._deleted.values():
                    raise
        return found

    def named(self, names: Sequence[str]) -> list[Storage]:
        """Return some of the runs, without deleted ones.

        Raises:
            ConfigurationError: No run has, or had, one of the names.
        """
        for name in names:
            if name not in self._storages and name not in self._deleted.values():
                raise self._unknown(name)
        return [self._storages[name] for name in names if name in self._storages]

    def rows_of(self, names: Sequence[str], query: str, values: Mapping[str, Any]) -> Rows:
        """Return the rows of a SELECT on the views of several runs, whose first column is the run.

        One database reads all of them, because opening each run takes 30 times as long.
        """
        storages = self.named(names)
        listed = in_threads(_listing, storages, _PARALLEL)
        if any(isinstance(each, str) for each in listed):
            self.search()  # one of them was deleted
            storages = self.named(names)
            listed = in_threads(_listing, storages, _PARALLEL)
        with self._together_lock:
            shown = [storage.url for storage in storages], listed
            if self._together is None or self._together[:2] != shown:
                self._forget_together()
                if not storages:
                    return []
                opened = self._open_together(storages)
                self._together = *shown, opened, {run.name: run.storage.url for run in opened.all}
            runs, urls = self._together[2:]
            try:
                rows = runs.queries.sql(query, dict(values)).fetchall()
            except CorruptFile:  # raised once, because from now on the file is marked as damaged and left out
                with self._opening:
                    self._opened.clear()  # the views of one run read the file again
                rows = runs.queries.sql(query, dict(values)).fetchall()
        called = {storage.url: name for name, storage in self._storages.items()}
        return [(called.get(urls[run], run), *rest) for run, *rest in rows]

    def _open_together(self, storages: Sequence[Storage]) -> Runs:
        """Open some runs for queries over all of them. Those that were opened before are only refreshed."""
        runs = Runs(storages, opened=[self._readers[each.url] for each in storages if each.url in self._readers])
        readers = self._readers | {run.storage.url: run for run in runs.all}
        self._readers = {each.url: readers[each.url] for each in self.storages if each.url in readers}
        return runs

    def _forget_together(self) -> None:
        if self._together is not None:
            self._together[2].close()
        self._together = None

    def search(self) -> None:
        """Find new runs and deleted ones."""
        with self._searching:
            begun = time.monotonic()
            damaged, found = dict[str, TensorTrialError](), _Found()
            known = {storage.url: storage for storage in self._storages.values()}
            for part, problems in in_threads(self._find, self._locations, _PARALLEL):
                found.update(part)
                damaged.update(problems)
            if any(not isinstance(error, RunNotFound) for error in damaged.values()):
                found = {**known, **found}  # the folder cannot be listed now
            for url in [url for url in found if url not in known]:
                try:
                    run_info(found[url])
                except TensorTrialError as exc:
                    damaged[url] = exc
                    del found[url]
            # A name stays the same when another run with an equal folder name begins.
            names = short_names(list(found)) | {s.url: name for name, s in self._storages.items() if s.url in found}
            self._deleted |= {storage.url: name for name, storage in self._storages.items() if storage.url not in found}
            self._deleted = {url: name for url, name in self._deleted.items() if url not in found}
            damaged |= {url: RunNotFound(url, "it was deleted while the page was open") for url in self._deleted}
            self._storages = {names[url]: known.get(url, storage) for url, storage in found.items()}
            self.damaged = damaged
            self._listings |= {storage.url: _listing(storage) for storage in self._unopened()}
            # A search for very many or remote runs is slow, so searches take at most a twentieth of all time.
            now = time.monotonic()
            self._search_at = now + max(_SEARCH_SECONDS, _SEARCH_SHARE * (now - begun))

    def _search_if_due(self) -> None:
        if time.monotonic() >= self._search_at:
            self.search()

    def _find(self, location: str | Storage) -> tuple[_Found, Mapping[str, TensorTrialError]]:
        if isinstance(location, Storage):
            try:
                return ({location.url: location} if RUN_FILE in location.list("") else {}), {}
            except FileNotFoundError:
                return {}, {}
        search = RunSearch(self._options)
        return {storage.url: storage for storage in search.find(location)}, search.damaged

    def _nothing(self) -> TensorTrialError:
        errors = list(self.damaged.values())
        return errors[0] if len(errors) == 1 else nothing_opened(self._locations, errors)

    def state(self) -> tuple[list[object], bool]:
        """Return a value that changes when there is something new to show, and whether all opened runs have ended.

        Opening a run does not change it: the part of an opened run is its listing, until the run's own state changes.
        """
        self._search_if_due()
        changed: dict[str, object] = {}
        all_ended = True
        for run in self.opened:
            storage = run.reader.storage
            try:
                state = run.state()
            except (TensorTrialError, FileNotFoundError):
                self.search()  # it was deleted
                continue
            if storage.url not in self._states:  # the listing comes after the state, so that nothing is missed
                self._states[storage.url], self._listings[storage.url] = state, _listing(storage)
            if state != self._states[storage.url]:
                changed[storage.url] = state
            all_ended = all_ended and state[1]
        shown = sorted((name, storage.url) for name, storage in self._storages.items())
        return [(name, changed.get(url, self._listings.get(url))) for name, url in shown], all_ended

    def _unopened(self) -> list[Storage]:
        return [storage for storage in self.storages if storage.url not in self._opened]

    def describe(self, chosen: str = "") -> list[dict[str, Any]]:
        """Return the descriptions of the chosen run and of opened ones, and the outlines of the others.

        Args:
            chosen: The name of the run to open. If it is unknown and there is only one run, that one is opened.

        Raises:
            RunNotFound: There is no run any more.
        """
        self._search_if_due()
        with suppress(TensorTrialError):
            if chosen in self._storages or len(self._storages) == 1:
                self.run(chosen if chosen in self._storages else self.names[0])
        if not self._storages:
            raise self._nothing()
        described = [each for each in in_threads(self._describe, self.opened, _PARALLEL) if each is not None]
        return sorted([*described, *self._outline()], key=lambda each: str(each["name"]))

    def annotate(self, name: str, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change some notes of a run, and return all of them.

        Raises:
            ConfigurationError: No run has this name.
            CorruptFile: The notes are damaged, and not all of them are replaced.
            StorageError: They cannot be written.
        """
        if name not in self._storages:
            raise self._unknown(name)
        written = change_notes(self._storages[name], changes)
        with self._outlining:
            self._outlines.pop(self._storages[name].url, None)
        return asdict(written)

    def reopen(self) -> None:
        """Open all runs again, and verify their files again, after one was found damaged."""
        with self._searching:
            self._storages = {name: copy(storage) for name, storage in self._storages.items()}
        with self._opening:
            self._opened = {}
        with self._outlining:
            self._outlines = {}
        with self._together_lock:
            self._forget_together()
            self._readers = {}

    def _describe(self, run: OpenRun) -> dict[str, Any] | None:
        try:
            return overview.describe_run(run)
        except (TensorTrialError, FileNotFoundError) as exc:
            error = (
                exc if isinstance(exc, TensorTrialError) else RunNotFound(run.trial.path, f"it is incomplete: {exc}")
            )
            self.damaged[run.trial.path] = error
            return None

    def _outline(self) -> list[dict[str, Any]]:
        """Return the outlines of the runs that no view has shown. Outlines of growing runs are read again."""
        with self._outlining:
            listed, now = {storage.url: storage for storage in self._unopened()}, self._listings
            grown = [each for url, each in listed.items() if self._outlines.get(url, (None,))[0] != now.get(url)]
            if grown:
                self._outlines |= {each["path"]: (now.get(each["path"]), each) for each in self._read_outlines(grown)}
            names = {storage.url: name for name, storage in self._storages.items()}
            return [{**self._outlines[url][1], "name": names[url]} for url in listed if url in self._outlines]

    def _read_outlines(self, storages: Sequence[Storage]) -> list[dict[str, Any]]:
        """Return the outlines of some runs, by one query for all of them unless one cannot be read."""
        try:
            with self._together_lock, self._open_together(storages) as runs:
                damaged = runs.damaged
                left_out = [(each, damaged[each.url]) for each in storages if each.url in damaged]
                return [*overview.outline(runs), *(overview.unreadable(*each) for each in left_out)]
        except TensorTrialError as exc:
            if len(storages) > 1:
                return [outline for each in storages for outline in self._read_outlines([each])]
            return [overview.unreadable(storages[0], exc)]

    def sizes(self) -> dict[str, int]:
        """Return the size of all files of each run."""
        return dict(zip(self.names, in_threads(_nbytes, self.storages, _PARALLEL), strict=True))

    def close(self) -> None:
        """Close the runs, and end the processes of queries."""
        self.queries.close()
        with self._together_lock:
            self._forget_together()
        for run in list(self._opened.values()):  # a request may be opening another
            run.trial.close()


def _locations(runs: Runs | RunLocations) -> list[str | Storage]:
    if isinstance(runs, Runs):
        return [run.storage for run in runs.all]
    listed = [runs] if isinstance(runs, str | os.PathLike | Trial) else list(runs)
    if not listed:
        raise ConfigurationError("a page needs a folder, a pattern, or a list of runs; the list is empty")
    return [run_reader_of(each).storage if isinstance(each, Trial) else os.fspath(each) for each in listed]


def _listing(storage: Storage) -> object:
    """Return a value that changes when a run has grown, ended, or was replaced by one with equal file names."""
    try:
        grown = [storage.list_after(f"{INDEX}/{worker}", "") for worker in storage.list(INDEX)]
        return storage.read_document(RUN_FILE), notes_of(storage), grown, [*map(storage.list, (END, FINDINGS))]
    except (TensorTrialError, FileNotFoundError) as exc:
        return str(exc)


def _nbytes(storage: Storage) -> int:
    try:
        return sum(file.nbytes for file in storage.walk())
    except (TensorTrialError, FileNotFoundError):
        return 0
