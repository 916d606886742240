"""The rows, statistics and raw values of steps, which are read once for all rules of a trial."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import compress, pairwise, takewhile, tee
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, ref

import numpy as np

from .. import forking
from ..config.collection import CollectionKeys
from ..dtypes import Array
from ..errors import FileError, StepUnavailable
from ..forking import lazy
from ..format.chunk_reader import pieces
from ..format.index_reader import LOCATION_COLUMNS, ROW_COLUMNS, Positions
from ..format.index_types import SavedTensor
from ..format.index_writer import TILE_STEPS
from ..mode import ModeKeys
from ..read.run_reader import RunReader
from ..read.trial import Trial, run_reader_of
from ..snapshot.columns import Lookup
from ..snapshot.saved_steps import MODES, NameSets, SavedSteps, StepInfo
from ..snapshot.workers import natural
from ..statistics.batched import can_join, statistics_of_many
from ..statistics.definitions import STATISTICS
from ..statistics.derived import derive
from ..statistics.single import statistics
from .step_columns import IDENTITY, Codes, StepColumns, read_columns

_KEPT_STEPS = 32
_KEPT_BYTES = 256 << 20
_KEPT_COMPUTED = 10_000
_BYTES_TOGETHER = 64 << 20
"""The most bytes of raw values that are read together."""
_ROWS_TOGETHER = 1 << 17
"""The most rows of steps that are evaluated together."""

Key = tuple[str, int, str]
Rows: TypeAlias = Positions
"""Numbers of rows of a step."""


class NotSaved(Exception):
    """An error: neither the statistics nor the raw value of a row were saved."""

    def __init__(self, row: SavedTensor, names: Sequence[str]) -> None:
        super().__init__(row.name)
        self.row, self.names = row, tuple(names)


@dataclass(frozen=True)
class Selector:
    """A selection of tensors: those of some collections, and those whose names match one of some regular expressions.

    Both empty select all tensors. Statistics along an axis are tensors, too, and are selected only by the name of their
    collection.
    """

    collections: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    def matches(self, name: str, collections: Iterable[str]) -> bool:
        if CollectionKeys.BY_AXIS in collections:
            return CollectionKeys.BY_AXIS in self.collections
        if not self.collections and not self.patterns:
            return True
        if any(wanted == "all" or wanted in collections for wanted in self.collections):
            return True
        return any(re.search(pattern, name) for pattern in self.patterns)

    def __str__(self) -> str:
        parts = [f"of collection {name!r}" for name in self.collections]
        parts += [f"with a name like {pattern!r}" for pattern in self.patterns]
        return f"tensor {' or '.join(parts)}" if parts else "tensor"


class Tensors:
    """The tensors of a step, by name and by worker in natural order. Most steps of a run share one object.

    Rows of a step are numbered in this order. Shapes are not checked: a forged file may say anything.
    """

    def __init__(self, identity: Sequence[Array], columns: Sequence[list[Any]]) -> None:
        self.identity = identity
        """The names, workers, dtypes and shapes as integers, in the order of `columns`."""
        names, workers, dtypes, shapes = columns
        of_worker = {worker: natural(worker) for worker in set(workers)}
        self.order = np.array(sorted(range(len(names)), key=lambda row: (names[row], of_worker[workers[row]])), np.intp)
        """The position of each row among the columns."""
        self.names, self.shapes = ([of[row] for row in self.order] for of in (names, shapes))
        self.workers, self.dtypes = (np.array(of, object)[self.order] for of in (workers, dtypes))
        self.sizes = np.array([math.prod(shapes[row]) for row in self.order], np.float64)
        """The number of elements of each row."""
        self.rows_of: defaultdict[str, list[int]] = defaultdict(list)
        """The rows of each name."""
        for row, name in enumerate(self.names):
            self.rows_of[name].append(row)
        self.selected: dict[Selector, Rows] = {}
        self.holding: dict[int, Array] = {}
        """The ids of the rows, by the number of sets that the run had. Names in the same sets have the same id."""

    @lazy
    def distinct_workers(self) -> set[str]:
        """The workers that have a row."""
        return {*self.workers.tolist()}

    @lazy
    def keys(self) -> list[tuple[str, str]]:
        """The name and the worker of each row."""
        return list(zip(self.names, self.workers, strict=True))

    @lazy
    def row_of(self) -> dict[tuple[str, str], int]:
        """The row of each name and worker."""
        return {key: row for row, key in enumerate(self.keys)}

    def rows_in(self, other: Tensors, rows: Rows) -> Rows:
        """Return the rows of the same names and workers in another step; -1 if there is none."""
        if other is self:
            return rows
        return np.array([other.row_of.get(self.keys[row], -1) for row in rows.tolist()], np.intp)


class Uneven(Exception):
    """An error: steps cannot be evaluated together, because more than their numbers differs."""


class _StepRows:
    """The rows of one step of a run, or of consecutive ones with the same tensors, step after step.

    Raises Uneven if the steps differ by more than their numbers.
    """

    def __init__(self, reader: Reader, infos: Sequence[StepInfo]) -> None:
        self._reader, self.infos = reader, infos
        self._rows: dict[bool, dict[int, SavedTensor]] = {True: {}, False: {}}
        """Rows with and without statistics."""
        self._read()

    def _read(self) -> None:
        last = self.infos[-1]
        columns, here = self._reader.read(self.infos[0].global_step, last.global_step)
        begins, mode_steps = (np.array([info[at] for info in self.infos]) for at in (0, 2))
        steps, codes = columns.numbers("global_step")[0], self._reader.codes
        at = np.minimum(np.searchsorted(begins, steps), len(begins) - 1).astype(np.min_scalar_type(len(begins)))
        here &= columns.codes("mode", codes) == codes.get(last.mode.name)
        here &= (steps == begins[at]) & (columns.numbers("mode_step")[0] == mode_steps[at])
        rows, at = np.flatnonzero(here), at[here]
        if len(begins) > 1:
            in_order = np.argsort(at, kind="stable")
            rows, at = rows.take(in_order), at.take(in_order)
        size, rest = divmod(len(rows), len(begins))
        if rest or (at.reshape(-1, size or 1) != np.arange(len(begins) if size else 0)[:, None]).any():
            raise Uneven
        identity = [*(columns.codes(name, codes) for name in IDENTITY), columns.shapes()]
        each_step = [each.take(rows, axis=0).reshape(len(begins), size, *each.shape[1:]) for each in identity]
        if any((each[1:] != each[:1]).any() for each in each_step):
            raise Uneven
        self.tensors = self._reader.tensors(last.global_step, [each[0] for each in each_step], columns, rows[:size])
        self._columns, self._numbers = columns, dict[str, tuple[Array, Array]]()
        self._order = rows.reshape(len(begins), size).take(self.tensors.order, axis=1).ravel()

    def _need(self, names: Collection[str]) -> None:
        """Read columns if they have not been read, and with those of the next steps."""
        self._reader.needed.update(dict.fromkeys(names, self._reader.reads))
        if not self._columns.names.issuperset(names):
            self._read()

    def rows(self, wanted: list[int], statistics: bool) -> list[SavedTensor]:
        known = self._rows[statistics]
        if missing := [number for number in wanted if number not in known]:
            self._need(ROW_COLUMNS if statistics else LOCATION_COLUMNS)
            known.update(zip(missing, self._columns.rows(self._order[missing], statistics), strict=True))
        return [known[number] for number in wanted]

    def column(self, name: str, wanted: Rows) -> tuple[Array, Array]:
        if name not in self._numbers:
            self._need([name])
            values, is_saved = (each.take(self._order) for each in self._columns.numbers(name))
            values[~is_saved] = np.nan
            self._numbers[name] = values, is_saved
        values, is_saved = self._numbers[name]
        return values.take(wanted), is_saved.take(wanted)


class StepView:
    """One step of a run, or consecutive ones with the same tensors, for the workers that count them alike.

    Its rows are columns, step after step. A row becomes an object only when it is requested.
    """

    def __init__(self, reader: Reader, rows: _StepRows, at: int | None = None) -> None:
        """Show all steps of some rows, or one of them."""
        self.infos = rows.infos if at is None else rows.infos[at : at + 1]
        self.info, self.tensors = self.infos[-1], rows.tensors
        self.step, self.mode, self.mode_step = self.info.global_step, self.info.mode, self.info.mode_step
        self.revision = reader.saved.revision(self.step)
        self._reader, self._all, self._first = reader, rows, (at or 0) * len(rows.tensors.names)

    def tensor_rows(self, rows: Rows) -> Rows:
        """Return the numbers of rows among the tensors of their steps."""
        return rows % max(len(self.tensors.names), 1) if len(self.infos) > 1 else rows

    def find(self, selector: Selector, among: Array | None = None) -> Rows:
        """Return the numbers of the selected rows, by step, name and worker. `among` is a mask of tensors."""
        found = self._selected(selector)
        if among is not None:
            found = found[among[found]]
        if len(self.infos) == 1:
            return found
        return (np.arange(len(self.infos))[:, None] * len(self.tensors.names) + found).ravel()

    def mask(self, selector: Selector) -> Array:
        """Return a mask of the tensors of a step that is True for the selected ones."""
        mask = np.zeros(len(self.tensors.names), bool)
        mask[self._selected(selector)] = True
        return mask

    def _selected(self, selector: Selector) -> Rows:
        tensors = self.tensors
        if selector not in tensors.selected:
            names = self._reader.names(self.step, selector)
            tensors.selected[selector] = np.array([row for name in names for row in tensors.rows_of.get(name, ())], int)
        return tensors.selected[selector]

    def rows(self, numbers: Rows, statistics: bool = False) -> list[SavedTensor]:
        """Return rows by their numbers, with their statistics, histograms and sketches only on request."""
        return self._all.rows((numbers + self._first).tolist(), statistics)

    def select(self, selector: Selector, statistics: bool = False) -> list[SavedTensor]:
        """Return the selected rows, by step, name and worker."""
        return self.rows(self.find(selector), statistics)

    def column(self, name: str, rows: Rows) -> tuple[Array, Array]:
        """Return a saved statistic of rows as float64, NaN if it is missing, and a mask of the saved ones."""
        return self._all.column(name, rows + self._first)

    def measure(self, rows: Rows, names: tuple[str, ...]) -> tuple[Measured, list[NotSaved]]:
        """Return statistics of rows, as `statistics` does, and the errors of the rows that lack them.

        Rows whose dtype defines none are left out. Raises Uneven if there are several steps, and some of their rows are
        neither scalars nor have the statistics.
        """
        columns = [self.column(name, rows) for name in names]
        if (is_known := np.all([each for _, each in columns], axis=0)).all():
            return Measured(self, rows, {name: each for name, (each, _) in zip(names, columns, strict=True)}), []
        values = np.array([each for each, _ in columns])
        lacking, positions = list[NotSaved](), np.flatnonzero(~is_known)
        if len(self.infos) > 1 and not self.column("scalar", rows[positions])[1].all():
            raise Uneven
        unsaved = self.rows(rows[positions])
        without_raw = np.flatnonzero([not row.has_raw for row in unsaved])
        for at, row in zip(without_raw.tolist(), self.rows(rows[positions[without_raw]], statistics=True), strict=True):
            unsaved[at] = row
        for at, found in zip(positions.tolist(), self._completed(unsaved, names), strict=True):
            if isinstance(found, NotSaved):
                lacking.append(found)
            elif found is not None:
                values[:, at], is_known[at] = found, True
        if len(self.infos) > 1 and not is_known.all():
            raise Uneven
        return Measured(self, rows[is_known], dict(zip(names, values[:, is_known], strict=True))), lacking

    def statistics(self, row: SavedTensor, names: tuple[str, ...]) -> tuple[float, ...] | None:
        """Return statistics of a row: the saved ones, or computed from the raw value or from other saved ones.

        None if the dtype defines none of them. Raises NotSaved.
        """
        if row.statistics is None and (row.name, row.worker) in self.tensors.row_of:
            at = bisect_left([info.global_step for info in self.infos], row.global_step) * len(self.tensors.names)
            (row,) = self.rows(np.array([at + self.tensors.row_of[row.name, row.worker]]), statistics=True)
        known = _saved(row)
        if known.keys() >= {*names}:
            return tuple(known[name] for name in names)
        (found,) = self._completed([row], names)
        if isinstance(found, NotSaved):
            raise found
        return found

    def _completed(
        self, rows: Sequence[SavedTensor], names: tuple[str, ...]
    ) -> list[tuple[float, ...] | NotSaved | None]:
        """Return what `statistics` does for rows that lack a saved one, and its error for one that lacks them."""
        raw = [row.has_raw for row in rows]
        computed = iter(self._reader.computed(list(compress(rows, raw)), names))
        return [next(computed) if has_raw else _derived(row, names) for row, has_raw in zip(rows, raw, strict=True)]

    def values(self, rows: Sequence[SavedTensor]) -> list[Array]:
        """Return the raw values of rows, read together. All rows must have one."""
        return self._reader.values(rows)


@dataclass(frozen=True, eq=False)
class Measured:
    """Statistics of some rows of a step, which can be read by column or by row."""

    view: StepView
    rows: Rows
    columns: dict[str, Array]

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def __iter__(self) -> Iterator[tuple[SavedTensor, tuple[float, ...]]]:
        values = zip(*(column.tolist() for column in self.columns.values()), strict=True)
        return zip(self.view.rows(self.rows), values, strict=True)

    @property
    def keys(self) -> list[tuple[str, str]]:
        """The name and the worker of each row."""
        return [self.view.tensors.keys[row] for row in self.view.tensor_rows(self.rows).tolist()]

    def where(self, chosen: Array | list[int] | slice) -> Measured:
        """Return the chosen rows, by a mask or by positions."""
        return Measured(self.view, self.rows[chosen], {name: each[chosen] for name, each in self.columns.items()})

    def shares(self) -> Measured:
        """Return counts as shares of the elements, in %; NaN for tensors without elements."""
        sizes = self.view.tensors.sizes[self.view.tensor_rows(self.rows)]
        return Measured(self.view, self.rows, {name: 100 * each / sizes for name, each in self.columns.items()})


class Reader:
    """The steps and rows of one trial at its last refresh. The last few steps and values are cached.

    Steps, names and modes are those of the trial; only data that rules compute are stored here.
    """

    def __init__(self, trial: Trial) -> None:
        # The reader does not refer to the trial, because it lives as long as the trial does.
        self._trial_ref = ref(trial)
        self._begin()
        forking.register(self)

    def after_fork(self) -> None:
        """Forget everything, because the trial numbers its files again in a forked child."""
        self._begin()

    def _begin(self) -> None:
        self._selected: dict[tuple[Selector, int], list[str]] = {}
        self._name_sets: NameSets | None = None
        """The name sets that `_selected` was computed for."""
        self._views: OrderedDict[int, list[StepView]] = OrderedDict()
        self._newest: tuple[SavedSteps | None, int, list[StepView]] = None, -1, []
        """The saved steps, the step and the result of the last call of `views`."""
        self._together: tuple[SavedSteps | None, list[int], _StepRows | None] = None, [], None
        """The steps that `together` returned last, with their saved steps."""
        self.codes = Codes()
        """An integer for each text in the columns of texts."""
        self.needed: dict[str, int] = {}
        """The columns that rules have needed, each with the number of reads before its last use."""
        self.reads = 0
        self._tensors: OrderedDict[tuple[tuple[int, ...], int], Tensors] = OrderedDict()
        """Tensors by their sets of names and their number."""
        self._before: tuple[object, dict[tuple[str, int, tuple[int, ...]], Iterator[StepInfo]]] = (None, {})
        """The saved steps, and iterators over the steps before a step, by its mode, its number and sets of names."""
        self._bounds: tuple[object, dict[str, tuple[list[int], Array, Array]]] = (None, {})
        """The saved steps, and for each mode what `_bounds_of_mode` returns."""
        self._values: OrderedDict[Key, Array] = OrderedDict()
        self._bytes = 0
        self._requested: dict[str, tuple[str, ...]] = {}
        """By name of a tensor: the statistics that rules have computed from its raw values."""
        self._computed: OrderedDict[Key, dict[str, float | None]] = OrderedDict()
        """By row: these statistics; None for those that its dtype does not define."""

    @property
    def _run(self) -> RunReader:
        trial = self._trial_ref()
        assert trial is not None
        return run_reader_of(trial)

    @property
    def saved(self) -> SavedSteps:
        """The saved steps."""
        saved = self._run.snapshot.steps
        if saved.name_sets is not self._name_sets:  # the run was read again, and may have been replaced
            self._begin()
            self._name_sets = saved.name_sets
        return saved

    def views(self, global_step: int) -> list[StepView]:
        """Return the rows of a step: several views if workers count it differently. Raises StepUnavailable."""
        saved = self.saved
        if self._newest[0] is saved and self._newest[1] == global_step:
            return self._newest[2]
        views, revision = self._views.get(global_step), saved.revision(global_step)
        if views is None or views[0].revision != revision:  # rows of another worker were added since
            infos = saved.infos(global_step)
            if not infos:
                raise StepUnavailable(global_step)
            of, steps, rows = self._together
            if rows is not None and of is saved and steps[0] <= global_step <= steps[-1]:
                views = [StepView(self, rows, bisect_left(steps, global_step))]
            else:
                views = [StepView(self, _StepRows(self, [info])) for info in infos]
            self._views[global_step] = views
            if len(self._views) > _KEPT_STEPS:
                self._views.popitem(last=False)
        self._newest = saved, global_step, views
        return views

    def together(self, steps: Sequence[int]) -> Iterator[tuple[Sequence[int], StepView | None]]:
        """Yield saved steps in groups: consecutive ones with the same tensors and a view of them, or single steps."""
        if len(steps) == 1:
            yield steps, None
            return
        saved = self.saved
        lookup, columns = saved.by_global_step, saved.columns
        least, greatest = (
            [reduced(each) for each in (columns.mode, columns.mode_step, columns.name_set, columns.worker)]
            for reduced in (lookup.least, lookup.greatest)
        )
        counted = (least[0] == greatest[0]) & (least[1] == greatest[1])
        alike = np.array([least[0], *least[2:], *greatest[2:], counted])
        at = np.searchsorted(lookup.distinct, steps)
        is_new = np.ones(len(at), bool)
        is_new[1:] = (np.diff(at) != 1) | (alike[:, at[1:]] != alike[:, at[:-1]]).any(axis=0)
        is_new |= ~counted[at]
        bounds = [*np.flatnonzero(is_new).tolist(), len(at)]
        cells = (each[at].tolist() for each in (*least[:2], lookup.least(columns.saved_at)))
        rows_of_steps = zip(steps, *cells, strict=True)
        infos = [StepInfo(step, MODES[mode], number, us / 1e6) for step, mode, number, us in rows_of_steps]
        for begin, end in pairwise(bounds):
            rows = len(self.saved.workers) * sum(len(saved.name_sets[each]) for each in saved.sets_at(steps[begin]))
            most = max(1, _ROWS_TOGETHER // max(rows, 1))
            most -= most % TILE_STEPS if most > TILE_STEPS else 0
            for first in range(begin, end, most):
                last = min(first + most, end)
                group = steps[first:last]
                # The consumer of the steps may have refreshed the trial since.
                view = self._view_together(infos[first:last]) if self.saved is saved else None
                yield from [(group, view)] if view is not None else (([step], None) for step in group)

    def _view_together(self, infos: Sequence[StepInfo]) -> StepView | None:
        """Return a view of steps; None if they must be evaluated one by one."""
        if len(infos) < 2:
            return None
        saved = self.saved
        try:
            rows = _StepRows(self, infos)
        except (FileError, Uneven):  # reading them one by one shows which step
            return None
        self._together = saved, [info.global_step for info in infos], rows
        return StepView(self, rows)

    def read(self, first: int, last: int) -> tuple[StepColumns, Array]:
        """Return the rows from one global step to another, and a mask of the rows that count."""
        recent = [name for name, last in self.needed.items() if last > self.reads - _KEPT_STEPS]
        names = recent or ROW_COLUMNS  # the first rules to ask need some of them
        self.reads += 1
        return self._run.read_rows(lambda cache, steps: read_columns(cache, steps, first, last, names))

    def tensors(self, global_step: int, identity: Sequence[Array], columns: StepColumns, rows: Rows) -> Tensors:
        """Return the tensors of some rows of a step. An equal object of another step is shared."""
        key = tuple(self.saved.sets_at(global_step)), len(rows)
        known = self._tensors.get(key)
        if known is None or not all(map(np.array_equal, known.identity, identity)):
            cells = [columns.cells(name, rows) for name in (*IDENTITY, "shape")]
            known = self._tensors[key] = Tensors(identity, cells)
            if len(self._tensors) > _KEPT_STEPS:
                self._tensors.popitem(last=False)
        return known

    def modes(self) -> list[ModeKeys]:
        """Return the modes with a saved step."""
        return self.saved.modes()

    def mode(self, global_step: int, worker: str | None) -> ModeKeys | None:
        """Return the mode of a saved step for a worker, or for the first worker that has it; None for another step."""
        info = self._run.states.info(global_step, ModeKeys.GLOBAL, worker)
        return None if info is None else info.mode

    def previous_info(self, global_step: int) -> StepInfo | None:
        """Return the saved step before one, of any mode."""
        steps = self.saved.by_global_step.distinct
        position = bisect_left(steps, global_step)
        return self.saved.infos(steps[position - 1])[0] if position else None

    def earlier(self, row: SavedTensor, last_mode_step: int | None = None) -> Iterator[SavedTensor]:
        """Yield the rows of the same tensor, worker and mode before `row`, newest first, up to a step of the mode.

        A row is read when the iterator reaches it.
        """
        end = row.global_step
        if last_mode_step is not None:
            steps, newest, _ = self._bounds_of_mode(row.mode)
            position = bisect_right(steps, last_mode_step)
            end = min(end, int(newest[position - 1]) + 1) if position else 0
        for info in self._steps_before(row.name, row.mode, end):
            is_wanted = last_mode_step is None or info.mode_step <= last_mode_step
            if is_wanted and (found := self._row(row, info)) is not None:
                yield found

    def since(self, row: SavedTensor, first_mode_step: int) -> SavedTensor | None:
        """Return the earliest row of the same tensor, worker and mode between a mode step and `row`.

        Its mode step is at least `first_mode_step` and less than that of `row`.
        """
        steps, _, oldest = self._bounds_of_mode(row.mode)
        begin = int(oldest[bisect_left(steps, first_mode_step)])
        before = self._steps_before(row.name, row.mode, row.global_step)
        for info in reversed(list(takewhile(lambda info: info.global_step >= begin, before))):
            if info.mode_step >= first_mode_step and (found := self._row(row, info)) is not None:
                return found
        return None

    def names(self, global_step: int, selector: Selector) -> list[str]:
        """Return the names of the selected tensors at a step, sorted."""
        found = [self._select(selector, name_set) for name_set in self.saved.sets_at(global_step)]
        return found[0] if len(found) == 1 else sorted({name for names in found for name in names})

    def steps_of(self, selector: Selector) -> list[int]:
        """Return the global steps at which a selected tensor was saved, ascending."""
        return sorted({step for each in self._sets_of(selector) for step in self.saved.steps_of_set(each)})

    def modes_of(self, selector: Selector) -> set[ModeKeys]:
        """Return the modes in which a selected tensor was saved."""
        are_held: Array = np.any(self.saved.sets_in_modes[self._sets_of(selector)], axis=0)
        return {mode for mode, is_held in zip(MODES, are_held.tolist(), strict=True) if is_held}

    def _sets_of(self, selector: Selector) -> list[int]:
        return [name_set for name_set in range(self.saved.num_sets) if self._select(selector, name_set)]

    def values(self, rows: Sequence[SavedTensor]) -> list[Array]:
        missing = [row for row in rows if _key(row) not in self._values]
        fresh = (
            {_key(row): value for row, value in zip(missing, self._run.read(missing), strict=True)} if missing else {}
        )
        found = [fresh.get(_key(row), self._values.get(_key(row))) for row in rows]
        for key, value in fresh.items():
            self._values[key] = value
            self._bytes += value.nbytes
        while self._bytes > _KEPT_BYTES and len(self._values) > 1:
            _, dropped = self._values.popitem(last=False)
            self._bytes -= dropped.nbytes
        return found  # type: ignore[return-value]

    def computed(self, rows: Sequence[SavedTensor], names: tuple[str, ...]) -> list[tuple[float, ...] | None]:
        """Return statistics computed from raw values; None for a row whose dtype does not define all of them.

        All that rules have requested of a tensor are computed together, in one pass over its value.
        """
        keys = list(map(_key, rows))
        found = {key: self._computed.get(key, {}) for key in keys}
        lacking: defaultdict[tuple[str, ...], list[SavedTensor]] = defaultdict(list)
        for key, row in zip(keys, rows, strict=True):
            if not found[key].keys() >= {*names}:
                wanted = tuple(dict.fromkeys((*self._requested.get(row.name, ()), *names)))
                self._requested[row.name] = wanted
                lacking[wanted].append(row)
        for wanted, alike in lacking.items():
            for some in pieces(alike, _BYTES_TOGETHER):
                values = self.values(some)
                joined = iter(statistics_of_many(list(filter(can_join, values)), wanted))
                for row, value in zip(some, values, strict=True):
                    known = next(joined) if can_join(value) else statistics(value, wanted)
                    found[_key(row)] = {name: known.get(name) for name in wanted}
        if lacking:
            self._computed.update(found)
            while len(self._computed) > _KEPT_COMPUTED:
                self._computed.popitem(last=False)
        cells = (tuple(found[key][name] for name in names) for key in keys)
        return [None if None in each else each for each in cells]  # type: ignore[misc]

    def _select(self, selector: Selector, name_set: int) -> list[str]:
        key = (selector, name_set)
        names = self._selected.get(key)
        if names is None:
            names = sorted(name for name, of in self.saved.name_sets[name_set] if selector.matches(name, of))
            self._selected[key] = names
        return names

    def _row(self, row: SavedTensor, info: StepInfo) -> SavedTensor | None:
        """Return the row of the same tensor and worker at a step; None if the worker counts that step differently."""
        view = self._view(info)
        at = view.tensors.row_of.get((row.name, row.worker))
        return None if at is None else view.rows(np.array([at]))[0]

    def _view(self, info: StepInfo) -> StepView:
        views = self.views(info.global_step)
        return next(view for view in views if (view.mode, view.mode_step) == (info.mode, info.mode_step))

    def views_before(self, view: StepView, rows: Rows) -> Iterator[tuple[Rows, Iterator[StepView]]]:
        """Yield groups of rows, each with its tensors' earlier steps in the mode, newest first."""
        saved, tensors = self.saved, view.tensors
        if saved.num_sets not in tensors.holding:
            found: defaultdict[tuple[int, ...], int] = defaultdict(lambda: len(found))
            tensors.holding = {saved.num_sets: np.array([found[tuple(saved.sets_of(name))] for name in tensors.names])}
        holding = tensors.holding[saved.num_sets][rows]
        for sets in sorted({*holding.tolist()}):
            group = rows[holding == sets]
            yield group, map(self._view, self._steps_before(tensors.names[group[0]], view.mode.name, view.step))

    def _bounds_of_mode(self, mode: str) -> tuple[list[int], Array, Array]:
        """Return the steps of a mode, the newest global step up to each of them, and the oldest from each on."""
        saved = self.saved
        if self._bounds[0] is not saved:
            self._bounds = saved, {}
        known = self._bounds[1].get(mode)
        if known is None:
            columns = saved.columns.of(saved.columns.mode == MODES.index(ModeKeys[mode]))
            lookup = Lookup(columns.mode_step)
            newest = np.maximum.accumulate(lookup.greatest(columns.global_step))
            oldest = np.minimum.accumulate(lookup.least(columns.global_step)[::-1])[::-1]
            known = self._bounds[1][mode] = lookup.distinct, newest, oldest
        return known

    def _steps_before(self, name: str, mode: str, global_step: int) -> Iterator[StepInfo]:
        """Yield the steps of a tensor in a mode before one, newest first."""
        saved = self.saved
        key = mode, global_step, tuple(saved.sets_of(name))
        if self._before[0] is not saved or len(self._before[1]) >= _KEPT_STEPS:
            self._before = saved, {}
        known = self._before[1].get(key)
        if known is None:
            (known,) = tee(_steps_of_mode_before(saved, *key), 1)
            self._before[1][key] = known
        return copy(known)  # which shares the steps that others have reached


def _steps_of_mode_before(
    saved: SavedSteps, mode: str, global_step: int, name_sets: Sequence[int]
) -> Iterator[StepInfo]:
    """Yield the steps of some sets of names in a mode before a step, newest first."""
    wanted = ModeKeys[mode]
    steps = [saved.steps_of_set(name_set) for name_set in name_sets]
    positions = [bisect_left(of_set, global_step) for of_set in steps]
    while any(positions):
        newest = max(of_set[position - 1] for of_set, position in zip(steps, positions, strict=True) if position)
        for which, of_set in enumerate(steps):
            if positions[which] and of_set[positions[which] - 1] == newest:
                positions[which] -= 1
        yield from (info for info in saved.infos(newest) if info.mode is wanted)


# The keys are the trials' inner readers, because trials of the same path are equal.
_readers: WeakKeyDictionary[RunReader, Reader] = WeakKeyDictionary()
_lock = forking.Lock()


def reader_of(trial: Trial) -> Reader:
    """Return the reader of a trial, which all its rules share."""
    run = run_reader_of(trial)
    if (known := _readers.get(run)) is not None:
        return known
    with _lock:
        return _readers.setdefault(run, Reader(trial))


def _saved(row: SavedTensor) -> dict[str, float]:
    return {name: value for name, value in zip(STATISTICS, row.statistics or (), strict=False) if value is not None}


def _derived(row: SavedTensor, names: tuple[str, ...]) -> tuple[float, ...] | NotSaved:
    known = _saved(row)
    found = [derive(name, known, row.shape) for name in names]
    return NotSaved(row, names) if None in found else tuple(found)  # type: ignore[arg-type]


def _key(row: SavedTensor) -> Key:
    return row.name, row.global_step, row.worker
