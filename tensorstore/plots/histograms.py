"""The distribution of a tensor over steps, as ridges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import Array
from ..errors import ConfigurationError, TensorUnavailableForStep
from ..read.trial import Trial, run_reader_of
from ..statistics.histogram import histogram
from .drawing import NOT_FINITE, NOT_FINITE_LABEL, Floats, add_legend, drawable, matplotlib, new_axes, set_title, shown
from .numbers import as_floats
from .selection import Selection, nothing_saved
from .thinning import evenly

_MOST = 32
_BINS = 60
_OVERLAP = 1.8
_WIDTH, _LEAST_HEIGHT, _ROW = 8.0, 2.4, 0.2
# The percentage at each end of a histogram that the axis may leave out.
_TAIL = 0.1
_SYMLOG_FROM = 30.0
_STEPS = "select distinct step from ({rows}) where histogram is not null or (chunk is not null and $raw) order by 1"
_SAVED = """
    select step, arg_min(histogram, (length(worker), worker)),
        arg_min(coalesce(nan_count, 0) + coalesce(inf_count, 0), (length(worker), worker))
    from ({rows}) where histogram is not null and list_contains($steps, step) group by step order by step
"""


@dataclass(frozen=True)
class _Ridge:
    step: int
    edges: Floats
    density: Floats
    """The number of elements of each bin, divided by its width relative to the widest bin."""
    wrong: int
    """The number of elements that are NaN or infinite."""


def draw_histograms(trial: Trial, chosen: Selection, name: str, ax: Any) -> Any:
    """Draw the ridges; see `TrialPlots.histograms`."""
    ridges, count = _read(trial, chosen, name)
    ax = new_axes(ax, _WIDTH, _LEAST_HEIGHT + _ROW * len(ridges))
    colors = matplotlib("").colormaps["viridis_r"](np.linspace(0.1, 0.9, len(ridges)))
    _scale(ax, ridges)
    marks = []
    for row, (ridge, color) in enumerate(zip(ridges, colors, strict=True)):
        marks += _draw(ax, ridge, row, color)
    ax.set_yticks(range(len(ridges)), [f"{ridge.step:,}" for ridge in ridges], fontsize=7)
    ax.set_ylim(len(ridges) - 0.5, -_OVERLAP - 0.1)
    ax.set_ylabel(chosen.step_label)
    ax.set_xlabel("value of an element")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    some = "" if len(ridges) == count else f", {len(ridges)} of {count:,} steps"
    set_title(ax, f"{shown(trial.name)}: distribution of {shown(name)}{some}\nheight: square root of the density")
    if marks:
        add_legend(ax, marks[:1], [NOT_FINITE_LABEL], loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return ax


def _read(trial: Trial, chosen: Selection, name: str) -> tuple[list[_Ridge], int]:
    """Return the ridges, and the number of steps that they are chosen from."""
    for raw in (False, True):
        query = _STEPS.format(rows=chosen.rows)
        steps = [step for (step,) in run_reader_of(trial).sql(query, {**chosen.parameters, "raw": raw}).fetchall()]
        if steps:
            some = evenly(steps, _MOST)
            ridges = _of_raw_values(trial, chosen, name, some) if raw else _saved(trial, chosen, some)
            if ridges:
                return ridges, len(steps)
    error = nothing_saved(chosen)
    raise ConfigurationError(f"{name!r} has neither histograms nor raw values of numbers to draw: {error}")


def _saved(trial: Trial, chosen: Selection, steps: list[int]) -> list[_Ridge]:
    rows = run_reader_of(trial).sql(_SAVED.format(rows=chosen.rows), {**chosen.parameters, "steps": steps}).fetchall()
    return [
        _ridge(step, np.asarray(each["edges"], float), np.asarray(each["counts"], float), int(wrong))
        for step, each, wrong in rows
    ]


def _of_raw_values(trial: Trial, chosen: Selection, name: str, steps: list[int]) -> list[_Ridge]:
    ridges = []
    for step in steps:
        try:
            value = as_floats(trial.tensor(name).value(step, chosen.mode, chosen.worker))
        except TensorUnavailableForStep:
            continue
        if value is None:
            return []
        ridges.append(_ridge_of(step, value))
    return ridges


def _ridge_of(step: int, value: Array) -> _Ridge:
    wrong = value.size - np.count_nonzero(np.isfinite(value))
    edges, counts = histogram(value, _BINS) or ([0.0, 1.0], [0])
    return _ridge(step, np.array(edges), np.array(counts, float), int(wrong))


def _ridge(step: int, edges: Floats, counts: Floats, wrong: int) -> _Ridge:
    edges = drawable(edges)
    widths = np.diff(edges)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Relative to the widest bin, because the width itself may be too small to divide by.
        density = np.where(widths > 0, counts / (widths / widths.max(initial=0.0)), 0.0)
    # A constant tensor has bins of width 0, which have all its elements.
    return _Ridge(step, edges, np.nan_to_num(density) if density.any() or not counts.any() else counts, wrong)


def _draw(ax: Any, ridge: _Ridge, row: int, color: Any) -> list[Any]:
    """Draw a ridge on its row. Return its mark if it has elements that are not finite."""
    highest = float(ridge.density.max(initial=0.0))
    # The height is the square root, because one bin often has most elements, and the others matter, too.
    heights = np.sqrt(ridge.density / highest) * _OVERLAP if highest > 0 else ridge.density
    x, y = np.repeat(ridge.edges, 2), np.concatenate([[0.0], np.repeat(heights, 2), [0.0]])
    if highest > 0:
        # Later ridges are in front of earlier ones.
        ax.fill_between(x, row, row - y, facecolor=color, edgecolor="white", linewidth=0.3, zorder=2 + row, alpha=0.9)
    ax.axhline(row, color="#BBBBBB", linewidth=0.5, zorder=1)
    if not ridge.wrong:
        return []
    mark = ax.plot(
        [1.005],
        [row - 0.2],
        marker=4,  # a triangle whose tip is left
        color=NOT_FINITE,
        linestyle="none",
        transform=ax.get_yaxis_transform(),
        clip_on=False,
        gid="not finite",
    )[0]
    return [mark]


def _scale(ax: Any, ridges: list[_Ridge]) -> None:
    extents = [_extent(ridge) for ridge in ridges if ridge.density.any()]
    if not extents:
        return
    least, most = min(low for low, _ in extents), max(high for _, high in extents)
    sizes = np.array([max(abs(low), abs(high)) for low, high in extents])
    usual = float(np.median(sizes))
    if usual > 0 and sizes.max() > _SYMLOG_FROM * usual:
        ax.set_xscale("symlog", linthresh=usual)
    extra = (most / 2 - least / 2) * 0.04 or abs(least) * 0.1 or 1.0
    ax.set_xlim(least - extra, most + extra)


def _extent(ridge: _Ridge) -> tuple[float, float]:
    """Return the ends of a ridge without its tails."""
    counts = ridge.density * np.maximum(np.diff(ridge.edges), np.finfo(float).tiny)
    share = np.cumsum(counts) / counts.sum() * 100
    first = int(np.searchsorted(share, _TAIL))
    last = min(int(np.searchsorted(share, 100 - _TAIL)), len(counts) - 1)
    return float(ridge.edges[first]), float(ridge.edges[last + 1])
