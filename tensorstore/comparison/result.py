"""The result of a comparison of two runs: a sentence, a table, Arrow and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import pyarrow as pa

from ..errors import importing
from ..format.arrow_arrays import table
from ..html_table import html_list, html_rows
from ..nested import plain
from ..visible import counted, in_a_line, listed

_MANY_ULPS = 10_000

_TEXT = pa.string()
SCHEMA = pa.schema(
    [
        ("name", _TEXT),
        ("name_b", _TEXT),
        ("mode", _TEXT),
        ("worker", _TEXT),
        ("worker_b", _TEXT),
        ("step", pa.int64()),
        ("global_step", pa.int64()),
        ("global_step_b", pa.int64()),
        ("order", pa.int32()),
        ("kind", _TEXT),
        ("dtype", _TEXT),
        ("dtype_b", _TEXT),
        ("shape", pa.list_(pa.int64())),
        ("shape_b", pa.list_(pa.int64())),
        ("statistics", _TEXT),
        ("max_abs", pa.float64()),
        ("ulps", pa.uint64()),
        ("elements", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Difference:
    """The first step at which a tensor differs. Attributes with `_b` are those of the second run."""

    name: str | None
    """The tensor; None if only the second run has it at the step."""
    name_b: str | None
    """None if only the first run has it at the step."""
    mode: str
    """The mode of the step; '' if two steps were compared."""
    worker: str | None
    """The worker that saved it; None where `name` is."""
    worker_b: str | None
    """The worker of the second run that saved it; None where `name_b` is."""
    step: int
    """The step, counted in the mode."""
    global_step: int | None
    """The step, counted over all modes; None if `name` is."""
    global_step_b: int | None
    """The global step in the second run; None where `name_b` is."""
    order: int | None
    """The position of the tensor in the execution of its step; None if unknown."""
    kind: str
    """`value`, `statistics`, `dtype`, `shape`, `only a`, `only b`, or `unreadable`."""
    dtype: str | None = None
    """None where `name` is."""
    dtype_b: str | None = None
    """None where `name_b` is."""
    shape: list[int] | None = None
    """None where `name` is."""
    shape_b: list[int] | None = None
    """None where `name_b` is."""
    statistics: str = ""
    """The saved statistics that differ, if there were no values to compare."""
    max_abs: float | None = None
    """The largest |a-b|, if both raw values were saved."""
    ulps: int | None = None
    """The largest distance of two elements in representable numbers, for floats of one dtype."""
    elements: int | None = None
    """The number of elements that differ."""

    @property
    def label(self) -> str:
        """The name of the tensor in the first run, or in the second if only that has it."""
        return self.name if self.name is not None else str(self.name_b)

    def __str__(self) -> str:
        return "; ".join(self._parts())

    def _parts(self) -> Iterator[str]:
        if self.kind == "dtype":
            yield f"{self.dtype} and {self.dtype_b}"
        elif self.kind == "shape":
            yield f"shapes {_shape(self.shape)} and {_shape(self.shape_b)}"
        elif self.kind.startswith("only"):
            yield f"{self.kind} has it at this step"
        elif self.kind == "unreadable":
            yield "a raw value cannot be read"
        elif self.statistics:
            yield f"saved statistics differ: {self.statistics.replace(' ', ', ')}"
        if self.max_abs == 0 and self.kind == "value":
            yield "its bits differ, but not its numbers"
        elif self.max_abs is not None:
            yield f"max |a-b| {_short(self.max_abs)}{_in_ulps(self.ulps)}"
        elif self.kind == "value" and not self.statistics:
            yield "its bits differ"


@dataclass(frozen=True)
class FirstDifference:
    """The first tensor that differs, in execution order, at the first step that differs."""

    difference: Difference
    """The tensor and the step."""
    place: int | None
    """The tensor's position among those of the step and worker, from 1; None if the order is unknown."""
    count: int
    """The number of tensors that the worker saved at the step."""
    last_agreeing: str | None
    """The previous tensor, which agrees; None if there is none, or the order is unknown."""
    inputs_agree: bool
    """True if inputs of the same module were saved. They precede it and agree."""

    def sentence(self, with_mode: bool, with_worker: bool) -> str:
        """Return the first line of a comparison.

        Args:
            with_mode: Include the mode of the step.
            with_worker: Include the worker that saved the tensor.

        Returns:
            The sentence.
        """
        found = self.difference
        of_mode = f" of {found.mode}" if with_mode else ""
        of_worker = f" of {in_a_line(found.worker or str(found.worker_b))}" if with_worker else ""
        label = in_a_line(found.label)
        return f"first difference at step {found.step}{of_mode}: {label}{of_worker} ({self._place()}), {found}"

    def _place(self) -> str:
        if self.place is None:
            return f"one of {self.count} tensors of the step, whose order is not known"
        place = f"the {_ordinal(self.place)} of {self.count} tensors of the step"
        if self.inputs_agree:
            return f"{place}; its inputs agree"
        return place if self.last_agreeing is None else f"{place}; those before it agree"


@dataclass(frozen=True)
class Only:
    """The steps, tensors and workers that only one of two runs has."""

    tensors: list[str] = field(default_factory=list)
    """Their names."""
    steps: dict[str, list[int]] = field(default_factory=dict)
    """By mode."""
    workers: list[str] = field(default_factory=list)
    """Their names."""
    mode: str = ""
    """The only mode that was compared; '' if all were."""

    def __bool__(self) -> bool:
        return bool(self.tensors or self.steps or self.workers)

    def lines(self, side: str) -> Iterator[str]:
        """Yield lines to print.

        Args:
            side: `a`, `b`, or the name of the run.
        """
        if self.tensors:
            of_mode = f" of {self.mode}" if self.mode else ""
            yield f"only {side} has {counted(len(self.tensors), 'tensor')}{of_mode}: {listed(self.tensors)}"
        for mode, steps in self.steps.items():
            of_mode = "" if mode == "GLOBAL" else f" of {mode}"
            yield f"only {side} has {counted(len(steps), 'step')}{of_mode}: {listed(list(map(str, steps)))}"
        if self.workers:
            yield f"only {side} has {counted(len(self.workers), 'worker')}: {listed(self.workers)}"


@dataclass(frozen=True)
class Comparison:
    """The first difference of two runs. `print(comparison)` shows it."""

    a: str
    """The path of the first run."""
    b: str
    """The path of the second run."""
    first: FirstDifference | None
    """The first difference; None if all common parts agree."""
    differences: list[Difference]
    """The first difference of each tensor that differs, by step and in execution order."""
    only_a: Only
    """The parts that only the first run has."""
    only_b: Only
    """The parts that only the second run has."""
    steps: int
    """The number of steps that both have."""
    rows: int
    """The number of saved tensors of the first run that were compared, over all steps and workers."""
    tolerance: Mapping[str, float | None]
    """`rtol`, `atol` and `ulps`."""
    notes: list[str]
    """Sentences about parts that could not be compared."""
    sides: tuple[str, str]
    """The names of `a` and `b`: their paths, with the workers or steps if these were chosen."""
    damaged: dict[str, str]
    """The errors of unreadable files, by path. Their content is not compared."""

    @property
    def same(self) -> bool:
        """True if both runs are equal and could be read completely. False if nothing was compared."""
        return self.rows > 0 and self.first is None and not self.only_a and not self.only_b and not self.damaged

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        if self.first is not None:
            of_workers = {(each.worker, each.worker_b) for each in self.differences}
            with_mode = self.first.difference.mode not in ("GLOBAL", "")
            return self.first.sentence(with_mode, len(of_workers) > 1 or self._names_worker())
        if not self.rows:
            return "there is nothing to compare: no tensor of a step is in both"
        how = "agree" if not any(self._limits()) else f"agree within {', '.join(self._limits())}"
        return f"no difference: {self.rows:,} saved tensors of {counted(self.steps, 'step')} {how}"

    def _names_worker(self) -> bool:
        assert self.first is not None
        found = self.first.difference
        return (found.worker or found.worker_b) != "worker_0" or found.worker != found.worker_b

    def _limits(self) -> list[str]:
        return [f"{name} {value:g}" for name, value in self.tolerance.items() if value is not None]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        columns = ("step", "mode", "tensor", "worker", "difference")
        rows = (
            (each.step, each.mode, each.label, each.worker or each.worker_b, str(each)) for each in self.differences
        )
        title, *lines = self._lines()
        return html_list(title, lines) + (html_rows(columns, rows) if self.differences else "")

    def _lines(self) -> Iterator[str]:
        yield self.sentence
        if self.first is not None and self.first.last_agreeing is not None:
            yield f"the last that agrees before it: {in_a_line(self.first.last_agreeing)}"
        if self.only_a or self.only_b or any(each.kind.startswith("only") for each in self.differences):
            yield "a is {}, b is {}".format(*map(in_a_line, self.sides))
        yield from self.only_a.lines("a")
        yield from self.only_b.lines("b")
        for path, reason in self.damaged.items():
            yield f"not compared: {in_a_line(path)}: {in_a_line(reason)}"
        yield from self.notes

    def to_arrow_table(self) -> pa.Table:
        """Return the differences as rows.

        Returns:
            One row for each tensor, mode and worker that differs, at its first step.
        """
        return table(SCHEMA, [[getattr(each, name) for name in SCHEMA.names] for each in self.differences])

    def df(self) -> Any:
        """Return the differences as a pandas DataFrame.

        Returns:
            One row for each tensor, mode and worker that differs, at its first step.

        Raises:
            MissingExtra: pandas is not installed.
        """
        with importing("pandas", "frame", "a data frame"):
            import pandas  # noqa: F401
        return self.to_arrow_table().to_pandas()

    def to_json(self) -> dict[str, Any]:
        """Return the whole answer as JSON values.

        Returns:
            A dictionary. NaN and infinities are texts.
        """
        document = {each.name: getattr(self, each.name) for each in fields(self)}
        document |= {"first": self.first and asdict(self.first), "only_a": asdict(self.only_a)}
        document |= {"only_b": asdict(self.only_b), "differences": [asdict(each) for each in self.differences]}
        return plain({"same": self.same, "sentence": self.sentence, **document})


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def _shape(shape: Sequence[int] | None) -> str:
    return "x".join(map(str, shape or ())) or "()"


def _in_ulps(ulps: int | None) -> str:
    """Return a distance in ulps as text, empty if it is so large that no rounding explains it."""
    if ulps is None or ulps >= _MANY_ULPS:
        return ""
    return ", 1 ulp" if ulps == 1 else f", {ulps:,} ulps"


def _short(number: float) -> str:
    """Return a number with two digits: 3.1e-2."""
    if not math.isfinite(number) or number == 0:
        return f"{number:g}"
    digits, _, exponent = f"{number:.1e}".partition("e")
    return f"{digits}e{int(exponent)}" if int(exponent) else digits
