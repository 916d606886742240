"""One tensor of a trial, by name: its steps, values, shapes and reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import Array
from ..errors import ShapeUnavailableForStep, TensorUnavailableForStep
from ..format.index_types import SavedTensor
from ..format.schema import UNKNOWN_SHAPE
from ..mode import ModeKeys
from ..statistics.definitions import STATISTICS, parse_statistic
from ..statistics.derived import derive
from ..statistics.single import statistic

if TYPE_CHECKING:
    from .run_reader import RunReader

GLOBAL = ModeKeys.GLOBAL


class Tensor:
    """The tensor `name` of a trial.

    `mode` says in which mode a step number is counted; GLOBAL, the default, counts over all modes. Where several
    workers saved the tensor, `worker` says whose is meant; without it, the first that has it, in natural order.
    """

    def __init__(self, name: str, reader: RunReader) -> None:
        self.name = name
        self._reader = reader

    def steps(self, mode: ModeKeys = GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """The steps at which the tensor was saved, ascending; complete ones only, unless told otherwise."""
        return self._reader.tensor_steps(self.name, mode, show_incomplete_steps)

    def value(self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> Array:
        """The raw value, in the dtype and shape it was saved with.

        Raises TensorUnavailableForStep (of which `has_reductions` tells whether statistics are there), StepUnavailable,
        StepNotYetAvailable, InvalidWorker; MissingChunk or CorruptFile where the run is damaged.
        """
        row = self._reader.row(self.name, step_num, mode, worker)
        if not row.has_raw:
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions=True)
        return self._reader.read([row])[0]

    def values(self, mode: ModeKeys = GLOBAL, worker: str | None = None) -> dict[int, Array]:
        """The raw value of every step that has one, by step. Small ones share memory; see `Trial.values`."""
        return self._reader.values([self.name], None, mode, worker)[self.name]

    def shape(self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        """The shape, which is known however the tensor was saved. Only of what was imported from an old run it may not
        be: ShapeUnavailableForStep."""
        shape = tuple(self._reader.row(self.name, step_num, mode, worker).shape)
        if shape == UNKNOWN_SHAPE:
            raise ShapeUnavailableForStep(self.name, step_num, mode)
        return shape

    def shapes(self, mode: ModeKeys = GLOBAL, worker: str | None = None) -> dict[int, tuple[int, ...]]:
        """The shape at every step at which it is known."""
        rows = self._reader.rows_of([self.name], mode, worker)[self.name]
        return {step: shape for step, row in rows.items() if (shape := tuple(row.shape)) != UNKNOWN_SHAPE}

    def reduction_value(
        self, step_num: int, reduction_name: str, mode: ModeKeys = GLOBAL, worker: str | None = None, abs: bool = False
    ) -> Array:
        """One statistic, as a float64 array without dimensions: the saved one, else computed from the raw value, else
        from other saved statistics, as abs_mean from l1.

        `reduction_name` is min, max, mean, median, std, variance, sum, prod, l1, l2 (with `abs`, of the absolute
        value), nan_count, inf_count or zero_count; ConfigurationError for another. Raises TensorUnavailableForStep if
        neither the statistic nor the raw value was saved, or if it is not defined for the dtype.
        """
        name = parse_statistic(
            f"abs_{reduction_name}" if abs and not reduction_name.startswith("abs_") else reduction_name
        )
        row = self._reader.row(self.name, step_num, mode, worker, statistics=True)
        saved = dict(_saved(row))
        value = saved.get(name)
        if value is None and row.has_raw:
            value = statistic(self._reader.read([row])[0], name)
            if value is None:
                hint = f"{name} is not defined for dtype {row.dtype}"
                raise TensorUnavailableForStep(self.name, step_num, mode, hint=hint)
        if value is None:
            value = derive(name, saved, row.shape)
        if value is None:
            hint = f"neither its {name} nor its raw value was saved"
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions=True, hint=hint)
        return np.array(value)

    def reduction_values(
        self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], Array]:
        """The saved statistics, by (name, whether of the absolute value). Nothing is computed."""
        row = self._reader.row(self.name, step_num, mode, worker, statistics=True)
        return {_key(name): np.array(value) for name, value in _saved(row)}

    def histogram(
        self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None
    ) -> tuple[Array, Array] | None:
        """The saved histogram as (edges, counts), one edge more than counts; None if none was asked for."""
        saved: dict[str, Any] | None = self._reader.row(self.name, step_num, mode, worker, statistics=True).histogram
        return None if saved is None else (np.array(saved["edges"]), np.array(saved["counts"]))

    def workers(self, step_num: int, mode: ModeKeys = GLOBAL) -> list[str]:
        """The workers that saved the tensor at a step, in natural order."""
        return [row.worker for row in self._reader.rows_at(self.name, step_num, mode)]

    def prev_steps(self, step: int, n: int, mode: ModeKeys = GLOBAL) -> list[int]:
        """The last `n` steps of the tensor up to `step`, itself included; fewer if there are fewer."""
        return [each for each in self.steps(mode) if each <= step][-n:] if n > 0 else []

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, trial={self._reader.name!r})"


def _saved(row: SavedTensor) -> list[tuple[str, float]]:
    """The statistics that were saved, by their names."""
    values = zip(STATISTICS, row.statistics or (), strict=bool(row.statistics))
    return [(name, value) for name, value in values if value is not None]


def _key(statistic_name: str) -> tuple[str, bool]:
    absolute = statistic_name.startswith("abs_")
    return statistic_name.removeprefix("abs_"), absolute
