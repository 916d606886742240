"""A tensor of a run: its steps, values, shapes and statistics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes import Array
from ..errors import ConfigurationError, ShapeUnavailableForStep, TensorUnavailableForStep
from ..format.arrow_arrays import numpy_of
from ..format.index_types import SavedTensor
from ..format.schema import UNKNOWN_SHAPE
from ..html_table import html_facts
from ..mode import GLOBAL, ModeKeys, checked_step
from ..statistics.definitions import STATISTICS, name_by_axis, parse_axis, parse_statistic
from ..statistics.digest import digest_of_array

if TYPE_CHECKING:
    from .run_reader import RunReader


class Tensor:
    """A tensor of a run, by name. Made by `Trial.tensor`.

    Step numbers count in the `mode` that is passed with them; GLOBAL, the default, counts over all modes. If several
    workers saved the tensor, `worker` selects one; by default it is the first one that has it, in natural order.
    """

    def __init__(self, name: str, reader: RunReader) -> None:
        self.name = name
        self._reader = reader

    def steps(self, mode: ModeKeys = GLOBAL, show_incomplete_steps: bool = False) -> list[int]:
        """Return the steps at which the tensor was saved.

        Args:
            mode: The mode that steps are counted in.
            show_incomplete_steps: Return incomplete steps, too.

        Returns:
            The steps, ascending.
        """
        return self._reader.tensor_steps(self.name, mode, show_incomplete_steps)

    def value(self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> Array:
        """Return the raw value at a step.

        Args:
            step_num: The step.
            mode: The mode that it is counted in.
            worker: The worker whose value is returned; None for the first one that has it.

        Returns:
            An array in the saved dtype and shape, which may be written to.

        Raises:
            TensorUnavailableForStep: No raw value was saved; its `has_reductions` is True if statistics were.
            StepUnavailable: The step was not saved and will not be.
            StepNotYetAvailable: The step was not saved yet, but may still be.
            InvalidWorker: The worker did not save the tensor at this step.
            MissingChunk: A file of raw values is missing.
            MissingIndexFile: A file of the index is missing.
            CorruptFile: A file cannot be read.
        """
        row = self._reader.row(self.name, step_num, mode, worker)
        if not row.has_raw:
            raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions=True)
        return self._reader.read([row])[0]

    __getitem__ = value

    def values(self, mode: ModeKeys = GLOBAL, worker: str | None = None) -> dict[int, Array]:
        """Return the raw value of every step that has one. Small arrays share memory; see `Trial.values`.

        Args:
            mode: The mode that steps are counted in.
            worker: The worker whose values are returned; None for the first one of each step that has one.

        Returns:
            The arrays, by step.
        """
        return self._reader.values([self.name], None, mode, worker)[self.name]

    def shape(self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None) -> tuple[int, ...]:
        """Return the shape at a step, which is known even if only statistics were saved.

        Args:
            step_num: The step.
            mode: The mode that it is counted in.
            worker: The worker whose shape is returned; None for the first one that has it.

        Returns:
            The lengths of the dimensions.

        Raises:
            ShapeUnavailableForStep: The value was imported from an old run, which did not keep its shape.
        """
        shape = tuple(self._reader.row(self.name, step_num, mode, worker).shape)
        if shape == UNKNOWN_SHAPE:
            raise ShapeUnavailableForStep(self.name, step_num, mode)
        return shape

    def shapes(self, mode: ModeKeys = GLOBAL, worker: str | None = None) -> dict[int, tuple[int, ...]]:
        """Return the shape at every step at which it is known.

        Args:
            mode: The mode that steps are counted in.
            worker: The worker whose shapes are returned; None for the first one of each step that has one.

        Returns:
            The lengths of the dimensions, by step.
        """
        rows = self._reader.rows_of([self.name], mode, worker)[self.name]
        return {step: shape for step, row in rows.items() if (shape := tuple(row.shape)) != UNKNOWN_SHAPE}

    def reduction(
        self, step_num: int, reduction_name: str, mode: ModeKeys = GLOBAL, worker: str | None = None, abs: bool = False
    ) -> float:
        """Return one statistic at a step as a number.

        `reduction_value` returns the same as an array, with the same arguments and errors.

        Args:
            step_num: The step.
            reduction_name: The statistic: min, mean, l2 and so on.
            mode: The mode that the step is counted in.
            worker: The worker whose statistic is returned; None for the first one that has it.
            abs: Return the statistic of the absolute value.

        Returns:
            A float; for digest an int.
        """
        value = self.reduction_value(step_num, reduction_name, mode, worker, abs)
        return value if isinstance(value, int) else float(value)

    def reduction_value(
        self,
        step_num: int,
        reduction_name: str,
        mode: ModeKeys = GLOBAL,
        worker: str | None = None,
        abs: bool = False,
        *,
        axis: int | None = None,
    ) -> Array | int:
        """Return one statistic at a step.

        If it was not saved, it is computed from the raw value or from other saved statistics.

        Args:
            step_num: The step.
            reduction_name: min, max, mean, median, std, variance, sum, prod, l1, l2, rms, skewness, kurtosis,
                nan_count, inf_count, zero_count, subnormal_count, saturated_count or digest.
            mode: The mode that the step is counted in.
            worker: The worker whose statistic is returned; None for the first one that has it.
            abs: Return the statistic of the absolute value.
            axis: Return the statistic for each index along this axis, negative ones counted from the last; None for
                that of the whole tensor.

        Returns:
            A float64 array without dimensions, or with `axis` of shape (shape[axis],). For digest an int, because a
            float64 cannot hold its 64 bits.

        Raises:
            TensorUnavailableForStep: The statistic was not saved and cannot be computed from saved data, or the dtype
                does not define it.
            ConfigurationError: The statistic is unknown, or the tensor has no such axis.
        """
        if str(reduction_name) == "digest" and axis is None:
            return self._digest(step_num, mode, worker)
        name = parse_statistic(reduction_name)
        name = parse_statistic(f"abs_{name}") if abs and not name.startswith("abs_") else name
        row = self._reader.row(self.name, step_num, mode, worker, statistics=True)
        if (number := parse_axis(axis)) is not None:
            return self._by_axis(row, step_num, name, mode, number)
        saved = dict(_saved(row))
        value = saved.get(name)
        if value is None:  # the statistics take 0.01 s to import
            from ..statistics.derived import derive
            from ..statistics.single import statistic

            value = None if row.has_raw else derive(name, saved, row.shape)
            if value is None:
                value = statistic(self._raw(row, name, step_num, mode), name)
            if value is None:
                hint = f"{name} is not defined for dtype {row.dtype}"
                raise TensorUnavailableForStep(self.name, step_num, mode, hint=hint)
        return np.array(value)

    def _by_axis(self, row: SavedTensor, step_num: int, name: str, mode: ModeKeys, number: int) -> Array:
        from ..statistics.by_axis import axis_within, statistics_by_axis

        axis = axis_within(number, row.shape)
        if axis is None or tuple(row.shape) == UNKNOWN_SHAPE:
            raise ConfigurationError(f"tensor {self.name!r} of shape {row.shape} has no axis {number}")
        saved = self._reader.saved_row(name_by_axis(self.name, name, axis), row.global_step, row.worker)
        if saved is not None and saved.has_raw:
            return self._reader.read([saved])[0]
        found = statistics_by_axis(self._raw(row, f"{name} along axis {axis}", step_num, mode), (name,), axis)
        if not found:
            hint = f"{name} is not defined for dtype {row.dtype}"
            raise TensorUnavailableForStep(self.name, step_num, mode, hint=hint)
        return found[name]

    def _digest(self, step_num: int, mode: ModeKeys, worker: str | None) -> int:
        row = self._reader.row(self.name, step_num, mode, worker)
        return digest_of_array(self._raw(row, "digest", step_num, mode)) if row.digest is None else row.digest

    def _raw(self, row: SavedTensor, what: str, step_num: int, mode: ModeKeys) -> Array:
        """Return the raw value of a row, from which `what` is computed."""
        if row.has_raw:
            return self._reader.read([row])[0]
        hint = f"neither its {what} nor its raw value was saved"
        raise TensorUnavailableForStep(self.name, step_num, mode, has_reductions=True, hint=hint)

    def reduction_values(
        self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None
    ) -> dict[tuple[str, bool], Array]:
        """Return the saved statistics at a step, without the digest. Nothing is computed.

        Args:
            step_num: The step.
            mode: The mode that it is counted in.
            worker: The worker whose statistics are returned; None for the first one that has them.

        Returns:
            Float64 arrays without dimensions, by (name, whether it is of the absolute value).
        """
        row = self._reader.row(self.name, step_num, mode, worker, statistics=True)
        return {(name.removeprefix("abs_"), name.startswith("abs_")): np.array(value) for name, value in _saved(row)}

    def histogram(
        self, step_num: int, mode: ModeKeys = GLOBAL, worker: str | None = None
    ) -> tuple[Array, Array] | None:
        """Return the saved histogram at a step.

        Args:
            step_num: The step.
            mode: The mode that it is counted in.
            worker: The worker whose histogram is returned; None for the first one that has it.

        Returns:
            (edges, counts), with one edge more than counts; None if no histogram was saved.
        """
        saved: dict[str, Any] | None = self._reader.row(self.name, step_num, mode, worker, statistics=True).histogram
        return None if saved is None else (np.array(saved["edges"]), np.array(saved["counts"]))

    def quantile(self, step_num: int, q: float, mode: ModeKeys = GLOBAL, worker: str | None = None) -> Array:
        """Return a quantile at a step, to 1/128 of itself, from a saved sketch or else from the raw value.

        It is `numpy.quantile(value, q, method="inverted_cdf")`, rounded to 7 significant binary digits: the least
        number that at least `q` of the elements do not exceed. NaN if an element is NaN, or if there is none.

        Args:
            step_num: The step.
            q: From 0 to 1: 0.5 for the median.
            mode: The mode that the step is counted in.
            worker: The worker whose tensor is read; None for the first one that has it.

        Returns:
            A float64 array without dimensions.

        Raises:
            TensorUnavailableForStep: Neither a sketch nor the raw value was saved, or the dtype has no order.
            ConfigurationError: `q` is outside of 0 to 1.
        """
        from ..statistics.sketch import Sketch, quantile, sketch_of

        row = self._reader.row(self.name, step_num, mode, worker, statistics=True)
        if row.sketch is not None:
            values, counts = (numpy_of(row.sketch[part].values) for part in Sketch._fields)
            return np.array(quantile(Sketch(values, counts), q))
        sketch = sketch_of(self._raw(row, "quantiles", step_num, mode))
        if sketch is None:
            raise TensorUnavailableForStep(self.name, step_num, mode, hint=f"dtype {row.dtype} has no quantiles")
        return np.array(quantile(sketch, q))

    def workers(self, step_num: int, mode: ModeKeys = GLOBAL) -> list[str]:
        """Return the workers that saved the tensor at a step.

        Args:
            step_num: The step.
            mode: The mode that it is counted in.

        Returns:
            Their names, in natural order.
        """
        return [row.worker for row in self._reader.rows_at(self.name, step_num, mode)]

    def prev_steps(self, step: int, n: int | None, mode: ModeKeys = GLOBAL) -> list[int]:
        """Return the last steps of the tensor up to a step.

        Args:
            step: The step, which is included.
            n: The most steps to return; None for all.
            mode: The mode that steps are counted in.

        Returns:
            The steps, ascending.

        Raises:
            ConfigurationError: `step` or `n` is no whole number.
        """
        last = checked_step(step)
        steps = [each for each in self.steps(mode) if each <= last]
        try:
            return steps if n is None else steps[max(0, len(steps) - int(n)) :]
        except (TypeError, ValueError, OverflowError) as exc:
            raise ConfigurationError(f"n must be a number of steps or None, got {n!r}") from exc

    def _repr_html_(self) -> str | None:
        return html_facts(f"Tensor {self.name}", self._facts())

    def _facts(self) -> Iterator[tuple[str, object]]:
        yield "trial", self._reader.name
        for mode in ModeKeys:
            if steps := self.steps(mode):
                yield f"steps {mode.name}", f"{len(steps):,}: {steps[0]} to {steps[-1]}"
        if steps:  # of GLOBAL, the last mode
            row = self._reader.row(self.name, steps[-1], GLOBAL, None, statistics=True)
            yield "dtype and shape", f"{row.dtype} {list(row.shape)}"
            yield "raw values", "saved" if row.has_raw else "not saved"
            yield from ((name, f"{value:.6g}") for name, value in _saved(row))

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, trial={self._reader.name!r})"


def _saved(row: SavedTensor) -> list[tuple[str, float]]:
    """Return the saved statistics with their names."""
    values = zip(STATISTICS, row.statistics or (), strict=bool(row.statistics))
    return [(name, value) for name, value in values if value is not None]
