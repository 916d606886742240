"""The run that an import writes: a new one, or one that an earlier import began."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..config.collection import CollectionKeys, is_loss
from ..errors import RunExists, StorageError, TensorTrialError, WorkerClaimed
from ..format import arrow_arrays
from ..format.arrow_arrays import numpy_of
from ..format.index_reader import read_batches
from ..format.record import Plan
from ..format.schema import END, FROM_START, INDEX_SCHEMA, RUN_FILE, FirstFlush, RunInfo, WorkerInfo, end_path
from ..snapshot.snapshot import repeated, take_twice
from ..storage.open import Storage
from ..version import __version__
from ..visible import quoted
from ..write.claim import REMAINS, claim, claim_again, has_remains
from ..write.writer import Writer

SOURCE = "imported_from"
"""The key of a run's metadata that names the source."""
WORKER = "worker_0"
"""The worker of a run whose source knows none."""
FLUSH_SECONDS = 10.0
"""The seconds between flushes: a killed import loses at most this much work."""

_Integers = npt.NDArray[np.int64]
_READ = pa.schema([INDEX_SCHEMA.field(name) for name in ("name", "global_step", "saved_at", "scalar")])


class Found(NamedTuple):
    """The values of a source or of a run, as columns of equal length. The last row of a name and step counts."""

    names: Sequence[str]
    name: _Integers
    """Index into `names`."""
    step: _Integers
    """The global step."""
    number: npt.NDArray[np.float64]
    is_number: npt.NDArray[np.bool_]
    """False for a histogram or another larger value, which is compared by its time."""
    saved_at: _Integers
    """Nanoseconds since 1970, UTC; 0 if unknown."""


class Begin(NamedTuple):
    """The point at which an import begins to write."""

    step: int
    """The first global step."""
    goes_back: bool = False
    """True if the run has this step, or later ones, which the import replaces."""


def begun(target: Storage, source: str) -> RunInfo | None:
    """Return the run that an import of `source` began at `target`, if any. Raises RunExists for any other run."""
    try:
        run = RunInfo.from_bytes(target.read_document(RUN_FILE), target.url)
    except FileNotFoundError:
        if has_remains(target):
            raise RunExists(target.url, REMAINS) from None
        return None
    if run.metadata.get(SOURCE) != source:
        raise RunExists(
            target.url,
            f"holds a run that was not imported from {source}; it is never overwritten: choose another target",
        )
    return run


def run_info(
    source: str, framework: str, times: npt.ArrayLike, metadata: Mapping[str, Any], num_workers: int = 1
) -> RunInfo:
    """Return the description of a run for an import from `source`, which the program `framework` wrote.

    `times` are those of values, shape (n,), in nanoseconds since 1970, UTC; 0 if unknown. The earliest one is the start
    of the run.
    """
    known = np.asarray(times)
    known = known[known > 0]
    began = datetime.fromtimestamp(int(known.min()) / 1e9, UTC) if len(known) else datetime.now(UTC)
    return RunInfo(
        started_at=began.isoformat(),
        id=uuid.uuid4().hex,
        framework=framework,
        num_workers=num_workers,
        versions={"tensortrial": __version__},
        metadata={**metadata, SOURCE: source},
    )


def collection_of(name: str) -> str:
    """Return the collection that a number with this name belongs to."""
    return CollectionKeys.LOSSES if is_loss(name) else CollectionKeys.METRICS


def claim_target(
    target: Storage,
    run: RunInfo,
    earlier: RunInfo | None,
    begin: Begin,
    plans: Sequence[Plan],
    is_complete: bool,
    report: Callable[[str], object],
) -> FirstFlush | None:
    """Claim a run as its only worker. Return the number of the first flush; None if the run has ended and is complete.

    `run` is the description that this import made, and `earlier` that in the run; None for a new run. `is_complete` is
    True if the source has nothing that the run lacks. `report` receives a sentence about metadata that has changed.
    """
    collections = (CollectionKeys.LOSSES, CollectionKeys.METRICS)
    names = {each: [plan.name for plan in plans if each in plan.collections] for each in collections}
    worker = WorkerInfo(
        WORKER,
        1,
        run.started_at,
        [{"name": each, "tensor_names": names[each]} for each in collections],
        [*collections],
        first_global_step=begin.step if begin.goes_back else 0,
        goes_back=begin.goes_back,
    )
    if earlier is None:
        try:
            claim(target, run, worker)
        except (RunExists, WorkerClaimed) as exc:
            raise RunExists(target.url, "another import into it is under way; import again once it is done") from exc
        return FROM_START
    _report_changed_metadata(earlier, run, target, report)
    if is_complete and end_path(WORKER) in end_marks(target):
        return None
    return claim_again(target, run, worker)


def end_marks(target: Storage) -> set[str]:
    """Return the paths of the end files of a run's workers."""
    return {f"{END}/{name}" for name in target.list(END)}


def begin_of(
    target: Storage,
    source: Found,
    report: Callable[[str], object],
    can_keep: Callable[[int], bool] = lambda row: True,
    withdrawn: Found | None = None,
) -> Begin:
    """Return the first step at which the source added, changed or withdrew a value: the import writes from there on.

    All values from there on are written again; the number of values that the source no longer has is reported.

    Args:
        target: The run.
        source: The values of the source.
        report: Receives a sentence about values that the source no longer has.
        can_keep: Returns whether a run can hold a row of the source.
        withdrawn: Values that no longer count, because their job went back.

    Raises:
        CorruptFile: An index file of the run is damaged.
        StorageError: Files were compacted twice while they were read.
    """
    run = _published(target)
    key_had, key_now, key_withdrawn = _keys(run, source, withdrawn or _rows(source, np.empty(0, np.int64)))
    had, now = _last_of_each(key_had), _last_of_each(key_now)
    place = np.searchsorted(key_had[had], key_now[now])
    is_known = np.isin(key_now[now], key_had[had])
    earlier = had[place[is_known]]
    is_same = np.zeros(len(now), bool)
    is_same[is_known] = _same(_rows(run, earlier), _rows(source, now[is_known]))
    changed = now[~is_same]
    done = int(run.step.max(initial=-1))
    changed = changed[np.argsort(source.step[changed], kind="stable")]
    step = next((int(source.step[row]) for row in changed if source.step[row] > done or can_keep(int(row))), done + 1)
    gone = had[~np.isin(key_had[had], key_now)]
    step = int(run.step[gone[np.isin(key_had[gone], key_withdrawn)]].min(initial=step))
    if step > done:
        return Begin(done + 1)
    if count := int(np.count_nonzero(run.step[gone] >= step)):
        report(f"{target.url}: {count} values from step {step} on, which the source no longer has, are superseded")
    return Begin(step, goes_back=True)


def _report_changed_metadata(earlier: RunInfo, run: RunInfo, target: Storage, report: Callable[[str], object]) -> None:
    """Report the metadata that has changed since the first import, because a run's metadata is written once."""
    before, now = ({key: json.dumps(each) for key, each in of.metadata.items()} for of in (earlier, run))
    if changed := [key for key in {**before, **now} if before.get(key) != now.get(key)]:
        some = quoted(changed)
        report(f"{target.url}: the new metadata of the source ({some}), as a run keeps that of its first import")


def _published(target: Storage) -> Found:
    """Return the values that are in the run."""
    try:
        rows = repeated(lambda: _published_rows(target), lambda: None)
    except FileNotFoundError as exc:
        raise StorageError(target.url, f"its files were compacted while they were read: {exc}; import again") from exc
    name, step, saved_at, number = (rows[name].combine_chunks() for name in _READ.names)
    coded = name.dictionary_encode()
    return Found(
        coded.dictionary.to_pylist(),
        numpy_of(coded.indices).astype(np.int64),
        numpy_of(step),
        numpy_of(number, missing=np.nan),
        numpy_of(number.is_valid().cast(pa.int8())).view(np.bool_),
        numpy_of(saved_at) * 1000,
    )


def _published_rows(target: Storage) -> pa.Table:
    snapshot = take_twice(target, [WORKER])
    for error in snapshot.damaged.values():
        raise error
    tables = [table for path in snapshot.steps.files() for table in read_batches(path, target.read(path), _READ)]
    return pa.concat_tables([arrow_arrays.table(_READ, []), *tables])


def _keys(*parts: Found) -> list[_Integers]:
    """Return a key for each row of each part; rows of the same name and step have equal keys."""
    names = {name: number for number, name in enumerate(dict.fromkeys(name for part in parts for name in part.names))}
    _, rank = np.unique(np.concatenate([part.step for part in parts]), return_inverse=True)
    of_names = [np.array([names[name] for name in part.names], np.int64)[part.name] for part in parts]
    keys = rank * len(names) + np.concatenate(of_names)
    return np.split(keys, np.cumsum([len(part.step) for part in parts])[:-1])


def _last_of_each(key: _Integers) -> _Integers:
    """Return the index of the last row of each key, ordered by key."""
    order: _Integers = np.argsort(key, kind="stable")
    is_last = np.append(np.diff(key[order]) != 0, True)[: len(order)]
    return order[is_last]


def _rows(found: Found, rows: _Integers) -> Found:
    return Found._make([found.names, *(column[rows] for column in found[1:])])


def _same(before: Found, now: Found) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows whose value in the run equals that of the source."""
    are_equal = (before.number == now.number) | (np.isnan(before.number) & np.isnan(now.number))
    # A run keeps times in microseconds.
    are_as_old = (now.saved_at == 0) | (before.saved_at // 1000 == now.saved_at // 1000)
    # A run keeps a larger value of one element as a number.
    is_same = np.where(now.is_number, are_equal & before.is_number, are_as_old)
    return np.asarray(is_same, np.bool_)


@contextmanager
def writing(target: Storage, worker: str, first_flush: FirstFlush, **options: Any) -> Iterator[Writer]:
    """Yield a writer, which the block closes. After an error or an interruption, leave the run open for an import."""
    writer = Writer(target, worker, flush_seconds=FLUSH_SECONDS, first_flush=first_flush, **options)
    try:
        yield writer
    except BaseException:
        with suppress(TensorTrialError):
            writer.close("the import was interrupted")
        target.remove(end_path(worker))
        raise
