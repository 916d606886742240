"""A run that the page shows: its trial, its tiles, and results that are cached until the run grows."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, TypeVar

import numpy as np

from ..dtypes import Array
from ..errors import ConfigurationError
from ..format import arrow_arrays
from ..format.index_reader import DecodedGroup, Positions
from ..format.schema import FINDINGS, RunInfo
from ..mode import ModeKeys
from ..read.run_queries import QuerySources, parquet_files
from ..read.trial import Trial, run_reader_of
from ..snapshot.columns import distinct
from ..snapshot.saved_steps import SavedSteps
from ..statistics.computed import NOTHING, USUAL, Computed, from_raw
from ..statistics.definitions import STATISTICS
from ..statistics.derived import SIZE, SIZED, has_expression
from ..statistics.derived import expression as derived_expression
from .grid import Grid
from .kept_tiles import kept_tiles
from .steps import ModeSteps, mode_steps, modes_of
from .tiles import CELLS, Choice, Tiles

_T = TypeVar("_T")

VALUE = "value"
"""The name of the statistic that is the value of a tensor of one element."""
ZERO_FRACTION = "zero_fraction"
DIGEST_CHANGED = "digest_changed"
"""1 at a step whose value differs in any bit from the value at the previous saved step, else 0."""
UPDATE_RATIO = "update_ratio"
"""The norm of a step's update, divided by that of the parameter, as the PyTorch hook saves it."""
GRADIENT_RATIO = "gradient_ratio"
"""The norm of the gradient, divided by that of its parameter."""
# Statistics that are computed from one row, with their SQL, in addition to the saved ones.
_MADE = {VALUE: "scalar", ZERO_FRACTION: "zero_count / nullif(list_product(shape), 0)"}
# Other names of l1 and l2, which the page shows once.
_SAME = {"abs_sum", "abs_l1", "abs_l2"}
_UPDATE_RATIOS = "update_ratio/"
_HYPERPARAMETERS = "hyperparameters/"
_CHANGED = """(
    select *, (digest <> lag(digest) over (partition by name, worker{mode} order by global_step))::double as changed
    from tiled where digest is not null
)"""
# The expressions of derived statistics name the number of elements often, and its SQL takes long to bind.
_COUNTED = f"(select *, {SIZE} as elements from tiled)"
_GRADIENTS = """(
    select weights.*, gradients.norm / nullif(weights.norm, 0) as ratio
    from (select *, {norm} as norm from {counted}) as weights
    join (
        select
            worker, global_step, {norm} as norm,
            coalesce(parameter, case when starts_with(name, 'gradient/') then name[10:] end) as weight
        from {counted}
    ) as gradients
        on gradients.weight = weights.name and gradients.worker = weights.worker
        and gradients.global_step = weights.global_step
)"""


_TOLD = ("name", "order", "chunk", "dtype", "shape", "scalar", "digest")
"""The columns that tell, together with STATISTICS, what is known about a tensor."""
_MOST_READ = 256 << 20
"""The most bytes of raw values that are read for the statistics of one answer."""
_MOST_SETS, _MOST_LOOKED_AT = 1000, 32
"""The most sets of tensors, and steps, in which statistics are looked for."""
SAME_FINDING = ("rule", "tensor", "mode", "failed")
"""The columns in which the repetitions of a finding are equal."""


@dataclass(frozen=True)
class _Outer:
    """The facts about all tensors, read from a few steps that have all of them."""

    names: list[str]
    """The names, in the order of execution if it was saved, scalars last."""
    statistics: list[str]
    """The statistics that were saved or can be computed from saved ones."""
    lean: frozenset[str]
    """Statistics that are saved for every tensor that has them, directly or derived."""
    raw: list[str]
    """The names of tensors with raw values of several elements, but without statistics."""
    num_mapped: int
    """The number of tensors that are no numbers and have a statistic, saved or computed from raw values."""
    num_numbers: int
    """The number of tensors that are numbers, without hyperparameters and update ratios."""


@dataclass
class _Kept:
    """The cached results of one version of the run."""

    version: Hashable = None
    value: Any = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class OpenRun:
    """One run that the page shows. Safe to use from several threads."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.reader = run_reader_of(trial)
        """The gateway to the run, which refreshes by itself."""
        self._lock = threading.Lock()
        self._kept: dict[Any, _Kept] = {}
        self._tiles: tuple[QuerySources, Tiles] | None = None
        self.new_findings: list[dict[str, Any]] = []
        """The findings of rules that were evaluated for a report. They are not written into the run."""

    @property
    def name(self) -> str:
        return self.trial.name

    @property
    def info(self) -> RunInfo:
        return self.reader.info

    @property
    def tiles(self) -> Tiles:
        """The tiles of the run. They are made again when the run goes back or is replaced."""
        sources = self.reader.sources
        with self._lock:
            if self._tiles is None or self._tiles[0] is not sources:
                kept = kept_tiles(self.info.id, self.reader.storage.url)
                self._tiles = sources, Tiles(self.reader, sources, lambda: self.names, kept)
            return self._tiles[1]

    @property
    def version(self) -> Hashable:
        """A value that changes with each refresh that found something new, or read the run again."""
        return self.reader.sources, self.reader.version

    @property
    def damaged(self) -> list[str]:
        """Sentences about the files that cannot be read."""
        return [f"{path}: {error}" for path, error in self.reader.snapshot.damaged.items()]

    def refresh(self) -> Hashable:
        """Find new data, and return the version."""
        self.reader.refresh()
        return self.version

    def state(self) -> tuple[Hashable, bool, tuple[str, ...]]:
        """Return a value that changes when there is something new to show: data, the end of the job, findings."""
        ended = self.trial.loaded_all_steps
        findings = parquet_files(self.reader.storage, FINDINGS)
        return self.refresh(), ended, tuple(findings)

    def count_findings(self) -> int:
        """Return the number of findings in the run and in `new_findings`, without repetitions."""
        recorded = self.recorded_findings(f"select distinct {', '.join(SAME_FINDING)} from findings")
        found = (tuple(each[key] for key in SAME_FINDING) for each in (*recorded, *self.unrecorded_findings()))
        return len(set(found))

    def unrecorded_findings(self) -> list[dict[str, Any]]:
        """Return the findings in `new_findings` that are not in the run."""
        if not self.new_findings:
            return []
        keys = ("rule", "step", "worker", "tensor")
        recorded = {tuple(each.values()) for each in self.recorded_findings(f"select {', '.join(keys)} from findings")}
        return [each for each in self.new_findings if tuple(each[key] for key in keys) not in recorded]

    def recorded_findings(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a query on the findings in the run. If there are none, no database is started."""
        self.reader.now()
        if not parquet_files(self.reader.storage, FINDINGS):
            return []
        rows = self.trial.sql(query)
        return [dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()]

    def kept(self, key: Any, make: Callable[[], _T]) -> _T:
        """Return the result of `make`, which is cached until the run grows."""
        self.reader.now()  # refreshes a run that has ended at most once a second
        version = self.version
        with self._lock:
            kept = self._kept.setdefault(key, _Kept())
        with kept.lock:  # other threads wait for the result instead of computing it too
            if kept.version != version:
                kept.value, kept.version = make(), version
            return kept.value

    @property
    def modes(self) -> list[str]:
        return self.kept("modes", lambda: modes_of(self.reader.snapshot.steps))

    def steps(self, mode: str) -> ModeSteps:
        """Return the saved steps of a mode."""
        return self.kept(("steps", mode), lambda: mode_steps(self.reader.snapshot.steps, mode))

    @property
    def names(self) -> list[str]:
        """The names of all tensors, in the order of execution if it was saved, scalars last."""
        return self._outer.names

    @property
    def statistics(self) -> list[str]:
        """The statistics that were saved, or can be derived from saved ones, at the steps that were looked at."""
        return self._outer.statistics

    @property
    def row_statistics(self) -> list[str]:
        """The statistics that are computed from one row. `expression` returns their SQL."""
        return [each for each in self.statistics if each in STATISTICS or each in _MADE]

    @property
    def num_mapped(self) -> int:
        """The number of tensors of the heat map, without numbers."""
        return self._outer.num_mapped

    @property
    def num_numbers(self) -> int:
        """The number of tensors that are numbers, such as losses, without hyperparameters and update ratios."""
        return self._outer.num_numbers

    @property
    def num_values(self) -> int:
        """The number of tensors that were saved, counted at each step of each worker."""
        steps = self.reader.snapshot.steps
        saved = np.bincount(steps.columns.name_set).tolist()
        return sum(times * len(steps.name_sets[number]) for number, times in enumerate(saved))

    @property
    def nbytes(self) -> int:
        """The size of all files of the run."""
        return self.kept("nbytes", lambda: sum(file.nbytes for file in self.reader.storage.walk()))

    @property
    def collections(self) -> dict[str, list[str]]:
        """The collections of each tensor."""
        return self.kept("collections", lambda: {name: list(of) for name, of in self._tensors()})

    def _tensors(self) -> list[tuple[str, Any]]:
        return self.reader.tensors(ModeKeys.GLOBAL)

    @property
    def _outer(self) -> _Outer:
        return self.kept("outer", self._read_outer)

    def _read_outer(self) -> _Outer:
        names, sources = [name for name, _ in self._tensors()], self.reader.sources
        rows = [row for at in enumerate(_telling_steps(sources.steps)) for row in self._rows_at(*at)]
        firsts: dict[str, tuple[Any, ...]] = {}
        raw, has_digests = dict[str, None](), False
        known: dict[tuple[bool, ...], set[str]] = {}
        mapped, numbers = set[str](), set[str]()
        for at, (name, order, chunk, dtype, shape, scalar, digest, *saved) in rows:
            place = scalar is not None, at > 1, order is None, order
            firsts[name] = min(firsts.get(name, place), place)
            size = math.prod(shape)
            if chunk is not None and saved[STATISTICS.index("l2")] is None and size > 1:
                raw[name] = None
            has_digests |= digest is not None
            form = *(each is not None for each in saved), size > 0, scalar is not None, dtype in SIZED
            if form not in known:
                known[form] = known_statistics(saved, dtype, shape, scalar)
            if scalar is not None:
                numbers.add(name)
            elif dtype in SIZED and (known[form] or name in raw):
                mapped.add(name)
        derived = frozenset[str]().union(*known.values())
        named = [each for each in (*STATISTICS, *_MADE) if each not in _SAME]
        statistics = [each for each in named if each in derived or (raw and each in USUAL)]
        has_changes = has_digests and len(sources.steps.columns.global_step) > 1
        statistics += self._made_of_several(names, firsts, derived, has_changes)
        lacking = (of.difference(compress(STATISTICS, form)) for form, of in known.items())
        lean = derived.difference(*lacking)
        ordered = sorted(names, key=lambda name: firsts.get(name, (True, True, True, None)))
        logged = [name for name in numbers if not name.startswith((_HYPERPARAMETERS, _UPDATE_RATIOS))]
        return _Outer(ordered, statistics, lean, list(raw), len(mapped - numbers), len(logged))

    def _rows_at(self, position: int, step: int) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the rows of a global step, each with `position` before its columns _TOLD and STATISTICS."""
        sources = self.reader.sources

        def cells(group: DecodedGroup, at: Positions) -> list[tuple[Any, ...]]:
            return list(zip(*(column(at) for column in group.cells([*_TOLD, *STATISTICS])), strict=True))

        paths = sources.readable_index(sources.steps.files_around(step))
        parts = self.reader.read_rows(lambda cache, _: cache.index_rows.read_each(paths, None, (step, step), cells))
        return ((position, row) for rows in parts for row in rows)

    def _made_of_several(
        self, names: list[str], seen: Iterable[str], statistics: Collection[str], has_changes: bool
    ) -> list[str]:
        """Return the statistics that are computed from several rows."""
        known = set(names)
        ratios = any(name.startswith(_UPDATE_RATIOS) for name in names)
        gradients = "l2" in statistics and any(f"gradient/{name}" in known for name in seen)
        made = {UPDATE_RATIO: ratios, GRADIENT_RATIO: gradients, DIGEST_CHANGED: has_changes}
        return [name for name, exists in made.items() if exists]

    def expression(self, statistic: str, lean: bool = True) -> str:
        """Return SQL over the view `tensors` for one of `row_statistics`.

        With `lean`, it is the column alone if that lacks nothing at the steps that were looked at, because binding the
        derivations takes longer than reading the column.
        """
        column = f'"{statistic}"' if lean and statistic in self._outer.lean else None
        return column or _MADE.get(statistic) or derived_expression(statistic)

    def grid(self, statistic: str, mode: str, worker: str, bounds: tuple[int | None, int | None], columns: int) -> Grid:
        """Return the tiles of a statistic in at most `columns` columns, rows in the order of execution.

        `worker` is "" for all. `bounds` are the first step and the step after the last one; None for all.
        """
        if statistic not in self.statistics:
            known = ", ".join(self.statistics)
            raise ConfigurationError(f"unknown statistic {statistic!r}; the statistics of {self.name} are: {known}")
        first, end = self.bounded(mode, bounds)
        last = max(self.steps(mode).end - 1, 0)
        grid = self.tiles.grid(self._choice(statistic, mode, worker), first, end, columns, last)
        if rows := self.computed_of_all(statistic).rows:
            grid = grid.joined(_grid_of(rows, mode, worker, grid.width).cut(first, end))
        if statistic == UPDATE_RATIO:
            grid = grid.renamed(
                {name: name.removeprefix(_UPDATE_RATIOS) for name in grid.names if name.startswith(_UPDATE_RATIOS)}
            )
        return grid.ordered(self.names)

    def computed_of_all(self, statistic: str) -> Computed:
        """Compute a statistic of all tensors that were saved raw."""
        if not self._outer.raw or statistic not in USUAL:
            return NOTHING
        return self.kept(("raw", statistic), lambda: self.computed(self._outer.raw, [statistic]))

    def computed(self, names: Sequence[str], statistics: Sequence[str]) -> Computed:
        """Compute statistics of tensors that were saved raw, up to _MOST_READ bytes."""
        raw = [name for name in names if name in self._outer.raw]
        if not raw:
            return NOTHING
        return from_raw(self.reader, statistics, "list_contains($names, name)", {"names": raw}, _MOST_READ)

    def _choice(self, statistic: str, mode: str, worker: str) -> Choice:
        if statistic in (VALUE, UPDATE_RATIO):
            return Choice("scalar", mode, worker)
        if statistic == DIGEST_CHANGED:
            of_mode = "" if mode == "GLOBAL" else ", mode"
            return Choice("changed", mode, worker, True, _CHANGED.format(mode=of_mode))
        if statistic == GRADIENT_RATIO:
            norm = derived_expression("l2", "elements")
            return Choice("ratio", mode, worker, source=_GRADIENTS.format(norm=norm, counted=_COUNTED))
        expression = _MADE.get(statistic) or derived_expression(statistic, "elements")
        return Choice(expression, mode, worker, source=_COUNTED if "elements" in expression else "tiled")

    def bounded(self, mode: str, bounds: tuple[int | None, int | None]) -> tuple[int, int]:
        """Return the first step and the step after the last one of a range, limited to the steps of the mode."""
        steps = self.steps(mode)
        first = steps.first if bounds[0] is None else max(bounds[0], 0)
        end = steps.end if bounds[1] is None else min(bounds[1], steps.end)
        return first, max(end, first + 1)


def known_statistics(saved: Sequence[float | None], dtype: str, shape: Sequence[int], scalar: float | None) -> set[str]:
    """Return the statistics that SQL computes from a row. `saved` are its cells of STATISTICS."""
    size = math.prod(shape)
    values = {name for name, each in zip(STATISTICS, saved, strict=True) if each is not None}
    sized = values | {"size"} if size > 0 and dtype in SIZED else values
    known = {name for name in STATISTICS if has_expression(name, sized)}
    made = {VALUE: scalar is not None, ZERO_FRACTION: "zero_count" in values and size > 0}
    return known.union(name for name, is_known in made.items() if is_known)


def _telling_steps(saved: SavedSteps) -> list[int]:
    """Return a few global steps that have all tensors: the first, one of the last, and others for what these lack."""
    at, sets = saved.columns.global_step, saved.columns.name_set
    ordered = distinct(at)
    # The newest step may be incomplete. An earlier step has the rows of all workers.
    steps = [int(each) for each in dict.fromkeys([*ordered[:1], *ordered[-8:][:1]])]
    seen = {each.name for number in distinct(sets[np.isin(at, steps)]).tolist() for each in saved.name_sets[number]}
    last = np.full(saved.num_sets, -1)
    last[sets] = np.arange(len(sets))
    largest = sorted(np.flatnonzero(last >= 0).tolist(), key=lambda number: -len(saved.name_sets[number]))
    for number in largest[:_MOST_SETS]:
        names = {each.name for each in saved.name_sets[number]}
        if not names <= seen and len(steps) < _MOST_LOOKED_AT:
            steps.append(int(at[last[number]]))
            seen |= names
    return steps


def _grid_of(rows: Sequence[tuple[Any, ...]], mode: str, worker: str, width: int) -> Grid:
    """Return the tiles of computed values: rows of name, worker, global step, mode, step of the mode, and value."""
    cells: dict[tuple[str, int], list[float]] = {}
    for name, of, global_step, of_mode, mode_step, value in rows:
        if worker in ("", of) and mode in ("GLOBAL", of_mode) and value is not None:
            step = global_step if mode == "GLOBAL" else mode_step
            cells.setdefault((name, step // width), []).append(value)
    rows_of_cells = [_cell(*key, np.array(each)) for key, each in cells.items()]
    return Grid.from_rows(arrow_arrays.table(CELLS, rows_of_cells), width)


def _cell(name: str, column: int, values: Array) -> tuple[Any, ...]:
    finite = values[np.isfinite(values)]
    folded = (finite.min(), finite.max()) if len(finite) else (None, None)
    return name, column, *folded, finite.sum(), len(finite), len(values)
