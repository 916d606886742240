"""The steps of a run by the summaries of its index files: columns of numbers, with one row a step of a worker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import lt
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..forking import lazy
from ..format import arrow_arrays
from ..format.index_types import IndexSummary, NamedTensor, StepSummary
from ..mode import GLOBAL, ModeKeys
from .columns import Integers, Lookup, distinct
from .index_files import IndexFile

MODES = tuple(ModeKeys)
_MODE_CODES = {mode.name: code for code, mode in enumerate(MODES)}

STEPS = pa.schema(
    [
        ("run", pa.string()),
        ("mode", pa.string()),
        ("mode_step", pa.int64()),
        ("global_step", pa.int64()),
        ("worker", pa.string()),
        ("saved_at", pa.timestamp("us", tz="UTC")),
        ("num_tensors", pa.int64()),
    ]
)
"""The columns of the view `steps`."""

StepRange = tuple[int | None, int | None]
"""Global steps from the first number to before the second. None leaves that side open."""

StepKey = tuple[str, int, int]
"""A step of a worker: its mode, the step of the mode, and the global step."""


def is_in_range(step: int, range_steps: StepRange) -> bool:
    """Return whether first <= step < end."""
    first, end = range_steps
    return (first is None or step >= first) and (end is None or step < end)


class StepInfo(NamedTuple):
    """A saved step."""

    global_step: int
    mode: ModeKeys
    mode_step: int
    saved_at: float
    """Seconds since 1970, when the first worker's last tensor of the step was saved."""


class Columns(NamedTuple):
    """One row for each step of a worker in each file, in the order in which the files were found."""

    file: Integers
    worker: Integers
    """The position among the workers."""
    mode: Integers
    """The position in `MODES`."""
    mode_step: Integers
    global_step: Integers
    saved_at: Integers
    """Microseconds since 1970."""
    name_set: Integers

    def of(self, rows: Any) -> Columns:
        """Return some rows."""
        return Columns(*(column[rows] for column in self))

    def cells(self, *names: str) -> Iterator[tuple[int, ...]]:
        """Return for each row its cells of some columns, as Python's integers."""
        return zip(*(getattr(self, name).tolist() for name in names), strict=True)

    def keys(self) -> Iterator[StepKey]:
        """Return for each row its mode, the step of the mode, and the global step."""
        cells = self.cells("mode", "mode_step", "global_step")
        return ((MODES[mode].name, mode_step, global_step) for mode, mode_step, global_step in cells)


NEVER = int(np.iinfo(np.int64).max)
_KINDS = ("i4", "i4", "i1", "i8", "i8", "i8", "i4")


class NameSets:
    """The sets of tensors that steps hold, numbered in the order in which they were found.

    Most steps hold the same tensors, so each set is kept once. It only grows: the steps of a run before and after a
    refresh share one, and each knows how many sets it has.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[NamedTensor, ...], int] = {}
        self._tensors: list[tuple[NamedTensor, ...]] = []
        self._of_name: dict[str, list[int]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, number: int) -> tuple[NamedTensor, ...]:
        """The tensors of a set, by name."""
        return self._tensors[number]

    def find(self, tensors: tuple[NamedTensor, ...]) -> int | None:
        """Return the number of a set; None if it has none yet."""
        return self._numbers.get(tensors)

    def number(self, tensors: tuple[NamedTensor, ...]) -> int:
        """Return the number of a set, which is added if it is new."""
        number = self._numbers.get(tensors)
        if number is None:
            number = self._numbers[tensors] = len(self._tensors)
            self._tensors.append(tuple(sorted(tensors)))
            for name in dict.fromkeys(name for name, _ in tensors):
                self._of_name[name].append(number)
        return number

    def holding(self, name: str) -> Iterator[int]:
        """Yield the numbers of the sets that hold a tensor, ascending."""
        yield from self._of_name.get(name, ())


@dataclass(frozen=True, eq=False)
class SavedSteps:
    """The steps of a run, with the files that hold their rows. It never changes: `added` returns another.

    Workers need not be in step: a global step may be one step of a mode for one worker and another for the next.
    """

    columns: Columns = field(default_factory=lambda: Columns(*(np.empty(0, kind) for kind in _KINDS)))
    paths: tuple[str, ...] = ()
    """The path of each file, by its number. Files that were compacted into one have the same path."""
    first_steps: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    """The first global step of each file."""
    last_steps: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    chunks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The files of raw values that each index file names."""
    workers: tuple[str, ...] = ()
    """The workers that saved anything, in the order in which they were found."""
    name_sets: NameSets = field(default_factory=NameSets)
    num_sets: int = 0
    """The number of name sets that these steps have."""
    newest: Mapping[str, int] = field(default_factory=dict)
    """The last global step of each worker."""
    repeats: bool = False
    """True if a worker may have saved a tensor twice at a step. Then the last one counts."""
    contradicts: bool = False
    """True if a worker has saved a known step again, in another mode or as another step of its mode."""
    lineage: object = field(default_factory=object)
    """An identity that stays while steps are only added, so that rows keep their positions."""

    overruled: Mapping[str, frozenset[StepKey]] = field(default_factory=dict)
    """The steps that each worker has saved again, in another mode or as another step of their mode."""
    unknown: Mapping[str, frozenset[StepKey]] = field(default_factory=dict)
    """The steps of each worker in files that are not in `columns`: overruled steps, and steps that are new since."""

    _tensors_of_modes: dict[ModeKeys, list[NamedTensor]] = field(init=False, default_factory=dict)
    _steps_of_sets: dict[int, list[int]] = field(init=False, default_factory=dict)

    # Growing.

    def added(self, files: Sequence[IndexFile], range_steps: StepRange | None = None) -> Self:
        """Return the steps together with the steps of new index files whose global steps are in range."""
        paths, chunks, cells = list(self.paths), dict(self.chunks), [list[int]() for _ in _KINDS]
        workers = {worker: code for code, worker in enumerate(self.workers)}
        newest, repeating = dict(self.newest), set[int]()
        for worker, path, summary, replaces, _ in files:
            kept = self._new_steps(path, summary, range_steps, bool(replaces))
            if not kept:
                continue
            code = workers.setdefault(worker, len(workers))
            modes, mode_steps, global_steps, saved_at, sets = zip(*kept, strict=True)
            if _repeats(worker, global_steps, newest):
                repeating.add(code)
            numbers = {number: self.name_sets.number(summary.name_sets[number]) for number in sorted(set(sets))}
            constant = ([len(paths)] * len(kept), [code] * len(kept))
            changing = (map(_MODE_CODES.__getitem__, modes), mode_steps, global_steps, saved_at)
            for column, new_cells in zip(cells, (*constant, *changing, map(numbers.__getitem__, sets)), strict=True):
                column += new_cells
            paths.append(path)
            chunks[path] = summary.chunks
        if len(paths) == len(self.paths):
            return self
        new = Columns(*(np.array(column, kind) for column, kind in zip(cells, _KINDS, strict=True)))
        contradicts, overruled = False, dict(self.overruled)
        if repeating:
            new, earlier = _without_overruled(new)
            for code in repeating:
                worker = list(workers)[code]
                overruled[worker] = overruled.get(worker, frozenset()) | {*earlier.of(earlier.worker == code).keys()}
            contradicts = any(_contradicts(self.columns, new, code) for code in repeating)
        first, last = _spans(new, len(self.paths), len(paths))
        return replace(
            self,
            columns=Columns(*map(np.concatenate, zip(self.columns, new, strict=True))),
            paths=tuple(paths),
            first_steps=np.concatenate([self.first_steps, first]),
            last_steps=np.concatenate([self.last_steps, last]),
            chunks=chunks,
            workers=tuple(workers),
            num_sets=len(self.name_sets),
            newest=newest,
            repeats=self.repeats or bool(repeating),
            contradicts=self.contradicts or contradicts,
            overruled=overruled,
            unknown=overruled,
        )

    def _new_steps(
        self, path: str, summary: IndexSummary, range_steps: StepRange | None, is_known: bool
    ) -> list[StepSummary]:
        """Return the unknown steps of a file that are in range. Many steps of a compacted file are known."""
        kept = summary.steps
        if range_steps is not None:
            kept = [step for step in kept if is_in_range(step.global_step, range_steps)]
        if is_known:
            known = Counter[tuple[int | None, ...]](self._steps_in({path}))
            sets = [self.name_sets.find(tensors) for tensors in summary.name_sets]
            found, kept = kept, []
            for step in found:
                # A step that was saved several times has several rows, and the known ones come first.
                key = step.global_step, step.saved_at_us, sets[step.name_set]
                if known[key]:
                    known[key] -= 1
                else:
                    kept.append(step)
        return kept

    def compacted(self, files: Sequence[IndexFile]) -> Self:
        """Return the same steps, where compacted files are replaced by the files that hold their steps now."""
        path_of = {old: file.path for file in files for old in file.replaces if old in self.chunks}
        if not path_of:
            return self
        new = set(path_of.values())
        chunks = {path: chunks for path, chunks in self.chunks.items() if path not in path_of}
        chunks |= {file.path: file.summary.chunks for file in files if file.path in new}
        paths = tuple(path_of.get(path, path) for path in self.paths)
        # Of a step that a file holds more than once, the reader may not know each.
        held = [[step.global_step for step in file.summary.steps] for file in files]
        repeats = self.repeats or any(len({*steps}) < len(steps) for steps in held)
        unknown = dict(self.unknown)
        for file in files:
            if file.path in new and (lacking := self._lacking(file)):
                unknown[file.worker] = lacking | unknown.get(file.worker, frozenset())
        return replace(self, paths=paths, chunks=chunks, repeats=repeats, lineage=object(), unknown=unknown)

    def _lacking(self, file: IndexFile) -> frozenset[StepKey]:
        """Return the steps of a file that are not among its worker's."""
        steps = frozenset((step.mode, step.mode_step, step.global_step) for step in file.summary.steps)
        return steps.difference(self.of_worker(file.worker).columns.keys())

    def lack(self, files: Sequence[IndexFile]) -> bool:
        """Return whether a file lacks steps of the files that it replaces, because a job went back."""
        for file in files:
            # The job may have saved steps of the same numbers since.
            held = {(step.global_step, step.saved_at_us) for step in file.summary.steps}
            if file.replaces and not held.issuperset(cells[:2] for cells in self._steps_in(set(file.replaces))):
                return True
        return False

    def _steps_in(self, paths: Collection[str]) -> Iterator[tuple[int, ...]]:
        """Return the global steps of some index files, with their times and name sets."""
        files = [number for number, each in enumerate(self.paths) if each in paths]
        return self.columns.of(np.isin(self.columns.file, files)).cells("global_step", "saved_at", "name_set")

    # Steps.

    @lazy
    def by_global_step(self) -> Lookup:
        """The rows of each global step."""
        return Lookup(self.columns.global_step)

    @lazy
    def _of_modes(self) -> dict[ModeKeys, tuple[npt.NDArray[np.intp], Lookup]]:
        """The rows of each mode, and a lookup of its steps among them."""
        rows = {mode: np.flatnonzero(self.columns.mode == code) for code, mode in enumerate(MODES)}
        return {mode: (of_mode, Lookup(self.columns.mode_step[of_mode])) for mode, of_mode in rows.items()}

    def rows_of(self, step: int, mode: ModeKeys) -> npt.NDArray[np.intp]:
        """Return the rows of a step of a mode; GLOBAL counts over all modes."""
        if mode is GLOBAL:
            return self.by_global_step.rows(step)
        rows, lookup = self._of_modes[mode]
        return rows[lookup.rows(step)]

    def in_mode(self, mode: ModeKeys) -> tuple[Columns, Lookup]:
        """Return the rows of a mode (GLOBAL: all rows), and a lookup of its steps among them."""
        if mode is GLOBAL:
            return self.columns, self.by_global_step
        rows, lookup = self._of_modes[mode]
        return self.columns.of(rows), lookup

    def modes(self) -> list[ModeKeys]:
        """Return the modes with saved steps, in the order of their definition."""
        return [mode for mode, (rows, _) in self._of_modes.items() if len(rows)]

    def infos(self, step: int, mode: ModeKeys = GLOBAL) -> list[StepInfo]:
        """Return a step of a mode as each worker saved it, ascending."""
        found: dict[tuple[int, int, int], int] = {}
        rows = self.columns.of(self.rows_of(step, mode))
        for place, of, number, saved_at in rows.cells("global_step", "mode", "mode_step", "saved_at"):
            key = place, of, number
            found[key] = min(saved_at, found.get(key, saved_at))
        infos = (StepInfo(place, MODES[of], number, us / 1e6) for (place, of, number), us in found.items())
        return sorted(infos, key=lambda info: info.global_step)

    def places(self, step: int, mode: ModeKeys) -> dict[str, tuple[int, ModeKeys, int]]:
        """Return the global step, the mode and its step for each worker that saved a step of a mode."""
        rows = self.columns.of(self.rows_of(step, mode))
        found = sorted(rows.cells("worker", "global_step", "mode", "mode_step"))
        return {self.workers[worker]: (place, MODES[of], number) for worker, place, of, number in found}

    def revision(self, global_step: int) -> int:
        """Return a number that grows when another worker's rows of a step are found."""
        return len(self.by_global_step.rows(global_step))

    def steps_of_mode(self, mode: ModeKeys) -> Sequence[int]:
        """Return the global steps of a mode, ascending."""
        return distinct(self.columns.global_step[self._of_modes[mode][0]]).tolist()

    def progress(self) -> dict[str, tuple[int, int]]:
        """Return the last global step of each worker, and when it last saved a step, in microseconds since 1970."""
        columns = self.columns.global_step, self.columns.saved_at
        last, at = (self._by_worker.greatest(column).tolist() for column in columns)
        codes = self._by_worker.distinct
        return {self.workers[code]: (step, when) for code, step, when in zip(codes, last, at, strict=True)}

    @lazy
    def _by_worker(self) -> Lookup:
        return Lookup(self.columns.worker)

    def of_worker(self, worker: str) -> Self:
        """Return the steps of one worker, with the numbers that files and sets of tensors have here."""
        code = self.workers.index(worker) if worker in self.workers else -1
        return replace(self, columns=self.columns.of(self._by_worker.rows(code)))

    @lazy
    def first_uneven_step(self) -> int:
        """The first global step at which two workers are not in step; 2^63 - 1 if there is none.

        For these workers it is another step, or a step of another mode; or the same step has another global step.
        """
        if len(self.workers) < 2:
            return NEVER
        of, steps = self.columns.mode_step * len(MODES) + self.columns.mode, np.array(self.by_global_step.distinct)
        found = [steps[self.by_global_step.least(of) != self.by_global_step.greatest(of)]]
        for rows, lookup in self._of_modes.values():
            places = self.columns.global_step[rows]
            first, last = lookup.least(places), lookup.greatest(places)
            found.append(first[first != last])
        return int(np.concatenate(found).min(initial=NEVER))

    # Names.

    def sets_at(self, step: int, mode: ModeKeys = GLOBAL) -> list[int]:
        """Return the sets of tensors that a step of a mode holds."""
        return list(dict.fromkeys(self.columns.name_set[self.rows_of(step, mode)].tolist()))

    @lazy
    def sets_in_modes(self) -> npt.NDArray[np.bool_]:
        """A mask of the sets (rows) that steps of a mode (columns, in the order of `MODES`) hold."""
        held = np.zeros((self.num_sets, len(MODES)), bool)
        held[self.columns.name_set, self.columns.mode] = True
        return held

    def sets_of(self, name: str) -> list[int]:
        """Return the sets that hold a tensor."""
        return [number for number in self.name_sets.holding(name) if number < self.num_sets]

    def tensors_of_mode(self, mode: ModeKeys) -> list[NamedTensor]:
        """Return the tensors that were saved in a mode (GLOBAL: in any), by name."""
        if mode not in self._tensors_of_modes:
            sets = range(self.num_sets) if mode is GLOBAL else distinct(self.in_mode(mode)[0].name_set).tolist()
            self._tensors_of_modes[mode] = sorted(set(chain.from_iterable(map(self.name_sets.__getitem__, sets))))
        return self._tensors_of_modes[mode]

    @lazy
    def names(self) -> dict[str, None]:
        """The names of all tensors, sorted."""
        return dict.fromkeys(name for name, _ in self.tensors_of_mode(GLOBAL))

    def steps_of_set(self, name_set: int) -> list[int]:
        """Return the global steps that hold a set, ascending."""
        if name_set not in self._steps_of_sets:
            found = distinct(self.columns.global_step[self._by_set.rows(name_set)])
            self._steps_of_sets[name_set] = found.tolist()
        return self._steps_of_sets[name_set]

    @lazy
    def _by_set(self) -> Lookup:
        return Lookup(self.columns.name_set)

    def _are_held(self, names: Iterable[str]) -> npt.NDArray[np.bool_]:
        """Return a mask of the sets that hold any of the names."""
        held = np.zeros(self.num_sets, bool)
        held[[number for name in names for number in self.sets_of(name)]] = True
        return held

    def steps_of_tensor(self, name: str, mode: ModeKeys) -> list[int]:
        """Return the steps of a mode at which a tensor was saved, ascending."""
        rows, _ = self.in_mode(mode)
        steps = rows.global_step if mode is GLOBAL else rows.mode_step
        return distinct(steps[self._are_held([name])[rows.name_set]]).tolist()

    @lazy
    def _saved_again(self) -> list[tuple[list[int], tuple[int, ...]]]:
        """The rows, in the order of the files, and the sets of each step that a worker has saved more than once."""
        if not self.repeats:
            return []
        order = np.lexsort((self.columns.global_step, self.columns.worker))
        worker, step = self.columns.worker[order], self.columns.global_step[order]
        begins = np.flatnonzero(np.append(True, (worker[1:] != worker[:-1]) | (step[1:] != step[:-1])))
        are_several = (counts := np.diff(begins, append=len(order))) > 1
        spans = map(slice, begins[are_several].tolist(), (begins + counts)[are_several].tolist())
        rows, sets = order.tolist(), self.columns.name_set[order].tolist()
        return [(rows[span], tuple(sets[span])) for span in spans]

    @lazy
    def repeated(self) -> list[tuple[str, int, str]]:
        """The tensors that a worker has saved more than once at a step, with the worker and the global step.

        The last row counts, in the order of the files and of the rows in a file.
        """
        found, names_of = list[tuple[str, int, str]](), dict[tuple[int, ...], list[str]]()
        for (row, *_), sets in self._saved_again:
            if sets not in names_of:
                # A tensor that the worker saved twice is listed twice.
                counts = Counter(name for number in sets for name in dict(self.name_sets[number]))
                names_of[sets] = [name for name, count in counts.items() if count > 1]
            worker, step = self.workers[self.columns.worker[row]], int(self.columns.global_step[row])
            found += [(worker, step, name) for name in names_of[sets]]
        return found

    def repeated_last_in(self, paths: Collection[str]) -> list[tuple[str, int, str]]:
        """Return the repeated tensors whose last row is in one of some files."""
        last = dict.fromkeys(self.repeated, -1)
        rows = self.columns.of(np.isin(self.columns.global_step, [step for _, step, _ in last]))
        for worker, step, name_set, file in rows.cells("worker", "global_step", "name_set", "file"):
            keys = ((self.workers[worker], step, name) for name, _ in self.name_sets[name_set])
            last |= {key: file for key in keys if key in last}
        return [key for key, file in last.items() if self.paths[file] in paths]

    # Files. Each has a number and a path; a compacted one has several numbers.

    def files(self) -> list[str]:
        """Return the paths of the index files, in the order in which they were found."""
        return [path for path, _, _ in self.spans]

    def chunk_paths(self) -> list[str]:
        """Return the paths of the files of raw values, in the order of their index files."""
        return list(dict.fromkeys(chain.from_iterable(self.chunks.values())))

    @lazy
    def spans(self) -> list[tuple[str, int, int]]:
        """Each index file with its first and its last global step, in the order in which they were found."""
        found: dict[str, tuple[int, int]] = {}
        for path, first, last in zip(self.paths, self.first_steps.tolist(), self.last_steps.tolist(), strict=True):
            known = found.get(path, (first, last))
            if first <= last:  # not all of its steps were contradicted
                found[path] = min(first, known[0]), max(last, known[1])
        return [(path, first, last) for path, (first, last) in found.items()]

    def files_around(self, step: int) -> list[str]:
        """Return the index files whose global steps span a step."""
        return self.paths_of(np.flatnonzero((self.first_steps <= step) & (step <= self.last_steps)))

    def files_with(self, steps: Collection[int]) -> list[str]:
        """Return the index files that hold any of some global steps."""
        return self.paths_of(distinct(self.columns.file[np.isin(self.columns.global_step, [*steps])]))

    def files_of_step(self, step: int) -> Integers:
        """Return the numbers of the index files that hold a global step, ascending."""
        return distinct(self.columns.file[self.by_global_step.rows(step)])

    def files_of_tensor(self, name: str) -> Integers:
        """Return the numbers of the index files that hold a tensor, ascending."""
        files, sets = self._sets_of_files
        return distinct(files[self._are_held([name])[sets]])

    @lazy
    def _sets_of_files(self) -> tuple[Integers, Integers]:
        """Pairs of files and sets, without most repetitions, because successive steps hold the same set."""
        file, name_set = self.columns.file, self.columns.name_set
        is_new = np.ones(len(file), bool)
        is_new[1:] = (file[1:] != file[:-1]) | (name_set[1:] != name_set[:-1])
        return file[is_new], name_set[is_new]

    def files_between(
        self,
        mode: ModeKeys,
        span: tuple[int, int] | None,
        names: Iterable[str] | None = None,
        worker: str | None = None,
    ) -> list[str]:
        """Return the index files with a step of a mode, first <= step < end of a span, of some tensors and a worker."""
        rows, _ = self.in_mode(mode)
        found = np.ones(len(rows.file), bool) if names is None else self._are_held(names)[rows.name_set]
        if worker is not None:
            found &= rows.worker == (self.workers.index(worker) if worker in self.workers else -1)
        if span is not None:
            steps = rows.global_step if mode is GLOBAL else rows.mode_step
            found &= (steps >= span[0]) & (steps < span[1])
        return self.paths_of(distinct(rows.file[found]))

    def paths_of(self, files: Integers) -> list[str]:
        """Return the paths of files by their numbers, each once."""
        return list(dict.fromkeys(self.paths[file] for file in files.tolist()))

    @property
    def num_tensors(self) -> Integers:
        """The number of tensors of each row."""
        sizes = np.array([len(self.name_sets[number]) for number in range(self.num_sets)], np.int64)
        return sizes[self.columns.name_set]

    def table(self, run: str = "") -> pa.Table:
        """Return the rows of the view `steps` for a run of this name: one a step of a worker."""
        num_tensors, counts = self.num_tensors, np.ones(len(self.columns.file), bool)
        for (*earlier, last), sets in self._saved_again:
            counts[earlier] = False
            num_tensors[last] = len({name for number in sets for name, _ in self.name_sets[number]})
        columns = self.columns.of(counts)

        def words(known: Sequence[str], codes: Integers) -> pa.Array:
            return arrow_arrays.broadcast(arrow_arrays.texts(known), codes.astype(np.intp))

        arrays = [
            words([run], np.zeros(len(columns.file), np.intp)),
            words([mode.name for mode in MODES], columns.mode),
            arrow_arrays.numbers(columns.mode_step, pa.int64()),
            arrow_arrays.numbers(columns.global_step, pa.int64()),
            words(self.workers, columns.worker),
            arrow_arrays.numbers(columns.saved_at, STEPS.field("saved_at").type),
            arrow_arrays.numbers(num_tensors[counts], pa.int64()),
        ]
        return pa.Table.from_arrays(arrays, schema=STEPS)


def _repeats(worker: str, global_steps: Sequence[int], newest: dict[str, int]) -> bool:
    """Return whether a worker may have saved one of the steps before. Update its last step in `newest`."""
    last = newest.get(worker, -1)
    newest[worker] = max(last, max(global_steps))
    return global_steps[0] <= last or not all(map(lt, global_steps, islice(global_steps, 1, None)))


def _without_overruled(rows: Columns) -> tuple[Columns, Columns]:
    """Return the rows that count, and the rows of steps that their worker has saved again as another step of a mode.

    This happens if a job went back to a checkpoint and a damaged file kept its steps from being superseded, or if its
    process was taken over with a flush under way. The last row counts, as for values.
    """
    cells = list(rows.cells("worker", "global_step", "mode", "mode_step"))
    last = {cell[:2]: cell for cell in cells}
    count = np.array([last[cell[:2]] == cell for cell in cells], bool)
    return rows.of(count), rows.of(~count)


def _contradicts(known: Columns, new: Columns, worker: int) -> bool:
    """Return whether new rows of a worker give known global steps another mode, or another step of it."""
    known, new = (rows.of(rows.worker == worker) for rows in (known, new))
    _, here, there = np.intersect1d(known.global_step, new.global_step, return_indices=True)
    return bool((known.mode[here] != new.mode[there]).any() or (known.mode_step[here] != new.mode_step[there]).any())


def _spans(rows: Columns, first: int, end: int) -> tuple[Integers, Integers]:
    """Return the first and the last global step of each file from `first` to before `end`."""
    lowest, highest = np.full(end - first, NEVER), np.full(end - first, -1)
    np.minimum.at(lowest, rows.file - first, rows.global_step)
    np.maximum.at(highest, rows.file - first, rows.global_step)
    return lowest, highest
