"""Make runs of this format from TensorBoard's event files, without TensorFlow.

from tensortrial.importers.tensorboard import import_runs

import_runs("logs", "runs/logs")
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import numpy as np

from ... import __version__
from ...config.collection import CollectionKeys
from ...dtypes import dtype_name
from ...errors import ConfigurationError, CorruptFile, UnsupportedValue
from ...format.record import Plan, Record, ScalarBatch, Step, ValueBatch
from ...format.schema import END, UNKNOWN_DTYPE, UNKNOWN_SHAPE, RunInfo, WorkerInfo, checked_metadata, end_path
from ...mode import ModeKeys
from ...progress import progress_bar
from ...storage.open import Storage, open_storage
from ...write.claim import claim, claim_again, published_steps
from ...write.writer import Writer
from ..metrics import Report, log
from ..tables import url_below
from ..target import SOURCE, begun, writing
from .columns import Columns, EventReader
from .event_runs import EventRun, find_runs
from .values import Kind, histogram_of, tensor_of

FLUSH_SECONDS = 10.0
"""So much of the work is lost, at most, when an import is killed."""
_WORKER = "worker_0"
_MODES = "modes"
_BATCH = 20_000
"""So many values are taken to the writer at once."""
_BATCH_PLACES = 2_000
_NOTHING = np.empty(0, np.uint8)


def import_runs(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    metadata: Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
    report: Report = log,
) -> list[str]:
    """Import the event files in `source`, a folder tree or one file, and return the paths of the runs that were made.

    A folder with event files is a run, together with those of its folders that are called train, validation, eval,
    test, predict and the like, which are its modes. The run of `source` itself is made at `target`, one in a folder
    below it in the same folder below `target`; where there are both, that of `source` goes to a folder of its name.

    Scalars, histograms, texts and tensors of numbers are kept, with their times; hyperparameters become metadata of the
    run, beside `metadata`. TensorBoard's step is the step in the mode; the global step counts through the modes of a
    step, and is the same where there is one mode only. What cannot be kept, such as images, audio and graphs, is
    counted and told to `report`, as is what cannot be read, such as the torn end of a job that was killed.

    Calling it again goes on where an import was interrupted, or takes later steps. Raises RunNotFound, RunExists,
    CorruptFile for a source with nothing to import, and ConfigurationError for one with a mode that it had not before.
    """
    storage, runs = find_runs(source, storage_options)
    places = [_place(storage, run, runs, target, storage_options) for run in runs]
    made = [
        _import_run(storage, run, place, checked_metadata(metadata), progress, report)
        for run, place in zip(runs, places, strict=True)
    ]
    if not any(made):
        raise CorruptFile(storage.url, "there is nothing in its event files that could be imported")
    return [url for url in made if url]


def _place(
    storage: Storage,
    run: EventRun,
    runs: Sequence[EventRun],
    target: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None,
) -> Storage:
    alone = run.name or len(runs) == 1
    return open_storage(url_below(target, run.name if alone else storage.url.rpartition("/")[2]), storage_options)


def _import_run(
    storage: Storage, run: EventRun, target: Storage, metadata: Mapping[str, Any], progress: bool, report: Report
) -> str | None:
    """The URL of the run that was made; None where there was nothing to make it of."""
    source = url_below(storage.url, run.name)
    if source == target.url:
        raise ConfigurationError(f"{source} cannot be imported into itself: choose another target")
    earlier = begun(target, source)
    reader = _read(storage, run, progress)
    for sentence in (*reader.damage, *_left_out(reader, source)):
        report(sentence)
    if not reader.names and not reader.hyperparameters and earlier is None:
        report(f"{source}: there is nothing in its event files that could be imported")
        return None
    importing = _Import(reader, run, target, report, earlier)
    importing.run(source, metadata, progress)
    return target.url


def _read(storage: Storage, run: EventRun, progress: bool) -> EventReader:
    reader = EventReader(storage)
    size = sum(storage.read_tail(path, 0)[1] for folder in run.folders for path in folder.files)
    with progress_bar(size, progress, f"read {run.name}", "B") as advance:
        for folder in run.folders:
            for path in folder.files:
                reader.read(path, folder.mode, folder.prefix, advance)
    return reader


def _left_out(reader: EventReader, source: str) -> Iterator[str]:
    if reader.left_out:
        yield f"{source}: " + ", ".join(f"{count} {what}" for what, count in sorted(reader.left_out.items()))


class _Import:
    """One run on its way to the writer."""

    def __init__(
        self, reader: EventReader, run: EventRun, target: Storage, report: Report, earlier: RunInfo | None
    ) -> None:
        self._reader, self._target, self._report, self._earlier = reader, target, report, earlier
        self._modes = _modes(run, earlier, target)
        self._plans = [self._plan(name) for name in range(len(reader.names))]

    def run(self, source: str, metadata: Mapping[str, Any], progress: bool) -> None:
        columns = self._reader.columns()
        global_step = self._global_steps(columns)
        done = -1
        if self._earlier is not None:
            done = self._done(global_step)
            if not (global_step > done).any() and end_path(_WORKER) in _ends(self._target):
                return
        first_flush = self._claim(source, metadata, columns)
        writer = Writer(self._target, _WORKER, flush_seconds=FLUSH_SECONDS, first_flush=first_flush)
        begin = int(np.searchsorted(global_step, done, "right"))
        with (
            writing(self._target, _WORKER, writer),
            progress_bar(len(global_step) - begin, progress, "import", "value") as advance,
        ):
            for start, end in _batches(global_step, columns, begin):
                self._write(writer, columns, global_step, start, end)
                advance(end - start)
            writer.close(self._failure())

    def _done(self, global_step: Any) -> int:
        """The last step that is imported. Steps are imported in their order: one that came later cannot be any more."""
        published = np.array([step.global_step for step in published_steps(self._target, _WORKER)], np.int64)
        done = int(published.max(initial=-1))
        late = np.setdiff1d(global_step[global_step <= done], published)
        if len(late):
            self._report(
                f"{self._target.url} has later steps already than {len(late)} that the source has got since: import it "
                "to another target to have them"
            )
        return done

    def _failure(self) -> str | None:
        damage = self._reader.damage
        return f"{len(damage)} events of the source could not be read: {damage[0]}" if damage else None

    def _global_steps(self, columns: Columns) -> Any:
        """Count through the modes of a step. The values of one step of one mode follow each other in `columns`."""
        rank = np.zeros(1 + max(mode.value for mode in ModeKeys), np.int64)
        rank[[mode.value for mode in self._modes]] = np.arange(len(self._modes))
        return columns.step * len(self._modes) + rank[columns.mode]

    def _claim(self, source: str, metadata: Mapping[str, Any], columns: Columns) -> int:
        """Gives the number of the first flush."""
        times = columns.saved_at[columns.saved_at > 0]
        began = (datetime.fromtimestamp(times.min() / 1e9, UTC) if len(times) else datetime.now(UTC)).isoformat()
        run = RunInfo(
            created_at=began,
            framework="tensorboard",
            versions={"tensortrial": __version__},
            metadata={
                **self._reader.hyperparameters,
                **metadata,
                SOURCE: source,
                _MODES: [mode.name for mode in self._modes],
            },
        )
        names = self._reader.names
        kinds = (CollectionKeys.LOSSES, CollectionKeys.METRICS)
        of = {kind: [name for index, name in enumerate(names) if kind in self._collections(index)] for kind in kinds}
        told = WorkerInfo(_WORKER, 1, began, [{"name": kind, "tensor_names": of[kind]} for kind in kinds], [*kinds])
        if self._earlier is not None:
            return claim_again(self._target, run, told)
        claim(self._target, run, told)
        return 0

    def _collections(self, name: int) -> tuple[str, ...]:
        if self._reader.kinds[name] is not Kind.NUMBER:
            return ()
        is_loss = "loss" in self._reader.names[name].lower()
        return (CollectionKeys.LOSSES if is_loss else CollectionKeys.METRICS,)

    def _plan(self, name: int) -> Plan:
        raw = self._reader.kinds[name] is Kind.TENSOR
        return Plan(self._reader.names[name], self._collections(name), raw)

    def _write(self, writer: Writer, columns: Columns, global_step: Any, start: int, end: int) -> None:
        """Hand over the values from `start` to `end`, which are whole steps."""
        places = columns.place[start:end].tolist()
        plans = [self._plans[name] for name in columns.name[start:end].tolist()]
        saved_at, numbers = columns.saved_at[start:end].tolist(), columns.number[start:end].tolist()
        large = [place for place in places if place >= 0]
        events = dict(zip(large, self._reader.fetch(large), strict=True))
        steps = global_step[start:end]
        bounds = np.flatnonzero(np.diff(steps, prepend=-1, append=-1)).tolist()
        for first, last in pairwise(bounds):
            row = start + first
            step = Step(ModeKeys(int(columns.mode[row])), int(columns.step[row]), int(steps[first]))
            records: list[Record | ScalarBatch | ValueBatch] = []
            if max(places[first:last]) < 0:
                records.append(ScalarBatch(plans[first:last], numbers[first:last], saved_at[first:last]))
            else:
                records += self._records(range(first, last), plans, numbers, saved_at, places, events)
            writer.put(step, records, closes=True)

    def _records(
        self,
        rows: range,
        plans: Sequence[Plan],
        numbers: Sequence[float],
        saved_at: Sequence[int],
        places: Sequence[int],
        events: Mapping[int, bytes | bytearray],
    ) -> Iterator[Record | ScalarBatch]:
        """The values of a step of which some are larger than a number."""
        together = ScalarBatch([], [], [])
        for row in rows:
            if places[row] < 0:
                together.add(plans[row], numbers[row], saved_at[row])
            elif (record := self._larger(plans[row], saved_at[row], places[row], events[places[row]])) is not None:
                yield record
        if together.plans:
            yield together

    def _larger(self, plan: Plan, saved_at: int, place: int, event: bytes | bytearray) -> Record | None:
        try:
            value = self._reader.value_at(place, event)
            if plan.raw:
                array = tensor_of(value)
                dtype_name(array.dtype)  # refuses what a run cannot hold
                return Record(plan, array, saved_at)
            histogram = histogram_of(value)
        except (ValueError, TypeError, IndexError, UnsupportedValue) as exc:
            self._report(f"{plan.name!r}, at byte {self._reader.places[place].record.start}: {exc}")
            return None
        if histogram is None:
            return None
        drawn = histogram.edges, histogram.counts
        return Record(plan, _NOTHING, saved_at, histogram.statistics, UNKNOWN_DTYPE, UNKNOWN_SHAPE, histogram=drawn)


def _modes(run: EventRun, earlier: RunInfo | None, target: Storage) -> list[ModeKeys]:
    """The modes that global steps count through. They stay those with which the import began."""
    if earlier is None:
        return run.modes
    began = [ModeKeys.parse(name) for name in earlier.metadata.get(_MODES, [])]
    new = [mode.name for mode in run.modes if mode not in began]
    if new:
        raise ConfigurationError(
            f"{target.url} was imported when the source had no steps of {', '.join(new)}, and its global steps leave "
            "no room for them: choose another target"
        )
    return began


def _ends(target: Storage) -> set[str]:
    return {f"{END}/{name}" for name in target.list(END)}


def _batches(global_step: Any, columns: Columns, begin: int) -> Iterator[tuple[int, int]]:
    """Where batches of whole steps begin and end."""
    if begin == len(global_step):
        return
    firsts = np.flatnonzero(np.diff(global_step, prepend=-1))
    firsts = firsts[firsts >= begin]
    # A value that has to be fetched counts for as many as may be fetched at once.
    weight = np.cumsum(np.where(columns.place >= 0, _BATCH // _BATCH_PLACES, 1))
    batch = (weight[firsts] - weight[begin]) // _BATCH
    starts = firsts[np.flatnonzero(np.diff(batch, prepend=-1))].tolist()
    yield from zip(starts, [*starts[1:], len(global_step)], strict=True)
