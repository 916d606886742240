"""The run that an import writes, new or begun by an earlier import."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import RunExists, StorageError, TensorTrialError
from ..format.index_reader import read_batches
from ..format.schema import INDEX_SCHEMA, RUN_FILE, RunInfo, end_path, index_folder
from ..snapshot.index_files import read_published
from ..storage.open import Storage
from ..write.writer import Writer

SOURCE = "imported_from"
"""The key of a run's metadata that names the source."""

_Integers = npt.NDArray[np.int64]
_READ = pa.schema([INDEX_SCHEMA.field(name) for name in ("name", "global_step", "saved_at", "scalar")])
_ATTEMPTS = 5  # how many times files may be compacted between listing and reading


class Found(NamedTuple):
    """The values of a source, or of a run: columns of equal length. Of one name and step the last row counts."""

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
        return None
    if run.metadata.get(SOURCE) != source:
        raise RunExists(
            target.url,
            f"holds a run that was not imported from {source}; it is never overwritten: choose another target",
        )
    return run


def begin_of(
    target: Storage,
    worker: str,
    source: Found,
    report: Callable[[str], object],
    can_keep: Callable[[int], bool] = lambda row: True,
    withdrawn: Found | None = None,
) -> Begin:
    """Return the first step at which the source has a value that the run lacks, or that it changed or withdrew.

    What the run has from there on is written again; values that the source no longer has are counted in a report.

    Args:
        target: The run.
        worker: Its worker.
        source: What the source has.
        report: Receives a sentence about what the source no longer has.
        can_keep: Returns whether a row of the source that the run lacks is one that a run can hold.
        withdrawn: Values that the source says do not count any more.

    Raises:
        CorruptFile: An index file of the run is damaged.
        StorageError: The run is compacted again and again.
    """
    run = _published(target, worker)
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
        report(f"{target.url}: {count} values from step {step} on, which the source no longer has, are set aside")
    return Begin(step, goes_back=True)


def report_changed_metadata(earlier: RunInfo, run: RunInfo, target: Storage, report: Callable[[str], object]) -> None:
    """Report which metadata has changed since the import began: that of a run is written once."""
    before, now = ({key: json.dumps(each) for key, each in of.metadata.items()} for of in (earlier, run))
    if changed := [key for key in {**before, **now} if before.get(key) != now.get(key)]:
        some = ", ".join(map(repr, changed[:3])) + (", …" if len(changed) > 3 else "")
        report(f"{target.url}: the new metadata of the source ({some}), as a run keeps that of its first import")


def _published(target: Storage, worker: str) -> Found:
    """Return what a worker has published."""
    for _ in range(_ATTEMPTS):
        index, files = read_published(target, worker)
        for error in index.damaged.values():
            raise error
        try:
            tables = [table for file in files for table in read_batches(file.path, target.read(file.path), _READ)]
        except FileNotFoundError:
            continue  # compacted meanwhile
        rows = pa.concat_tables([_READ.empty_table(), *tables])
        coded = rows["name"].combine_chunks().dictionary_encode()
        return Found(
            coded.dictionary.to_pylist(),
            coded.indices.to_numpy(zero_copy_only=False).astype(np.int64),
            rows["global_step"].to_numpy(),
            pc.fill_null(rows["scalar"], np.nan).to_numpy(),
            rows["scalar"].is_valid().to_numpy(),
            rows["saved_at"].cast(pa.int64()).to_numpy() * 1000,
        )
    raise StorageError(index_folder(worker), "its files were compacted while they were read; import it again")


def _keys(*parts: Found) -> list[_Integers]:
    """Return a number for each row of each part, which is equal for rows of the same name and step."""
    names = {name: number for number, name in enumerate(dict.fromkeys(name for part in parts for name in part.names))}
    _, rank = np.unique(np.concatenate([part.step for part in parts]), return_inverse=True)
    of_names = [np.array([names[name] for name in part.names], np.int64)[part.name] for part in parts]
    keys = rank * len(names) + np.concatenate(of_names)
    return np.split(keys, np.cumsum([len(part.step) for part in parts])[:-1])


def _last_of_each(key: _Integers) -> _Integers:
    """Return the last row of each key, by key."""
    order: _Integers = np.argsort(key, kind="stable")
    is_last = np.append(np.diff(key[order]) != 0, True)[: len(order)]
    last: _Integers = order[is_last]
    return last


def _rows(found: Found, rows: _Integers) -> Found:
    return Found(
        found.names,
        found.name[rows],
        found.step[rows],
        found.number[rows],
        found.is_number[rows],
        found.saved_at[rows],
    )


def _same(before: Found, now: Found) -> npt.NDArray[np.bool_]:
    """Return which values of a run are those that the source has now, row by row."""
    are_equal = (before.number == now.number) | (np.isnan(before.number) & np.isnan(now.number))
    # A run keeps microseconds.
    are_as_old = (now.saved_at == 0) | (before.saved_at // 1000 == now.saved_at // 1000)
    # A run keeps a larger value of one element as a number.
    is_same = np.where(now.is_number, are_equal & before.is_number, are_as_old)
    return np.asarray(is_same, np.bool_)


@contextmanager
def writing(target: Storage, worker: str, writer: Writer) -> Iterator[None]:
    """Close the writer after an error or an interruption, but not the run: the next import continues it."""
    try:
        yield
    except BaseException:
        with suppress(TensorTrialError):
            writer.close("the import was interrupted")
        target.remove(end_path(worker))
        raise
