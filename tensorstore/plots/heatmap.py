"""The heat map: a row a tensor, a column a step, the color a statistic."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..read.trial import Trial, run_reader_of
from ..snapshot.workers import natural
from ..statistics.past import past_scores
from .columns import with_gaps
from .drawing import (
    NOT_FINITE,
    NOT_FINITE_LABEL,
    NOT_SAVED,
    NOT_SAVED_LABEL,
    ZERO,
    Floats,
    add_legend,
    drawable,
    label_rows,
    mark_steps,
    matplotlib,
    new_axes,
    patch,
    pixels,
    set_title,
    shown,
)
from .selection import Selection, nothing_saved

_WIDTH, _LEAST_HEIGHT, _MOST_HEIGHT, _ROW = 10.0, 2.6, 20.0, 0.17
_SCALE_WIDTH = 0.16
# The percentage of smallest and of largest values that do not extend the scale.
_ROBUST = 2.0
_LOG_FROM = 30.0
_FEWEST = 5
"""The fewest earlier values of a past."""
_UNSURE = 8
"""The score of a value after n earlier ones is multiplied by n / (n + this): the spread of few values is uncertain."""
_USUAL, _LARGEST_SCORE = 3.0, 12.0
"""A score below the first is neutral; one above the second has the last color."""
_CELLS = """
    select
        name, min(step) as start, max(step) as last, min("order") as place,
        arg_max(value, abs(value)) filter (where isfinite(value)) as largest,
        count(*) filter (where not isfinite(value)) as wrong
    from ({rows}) where value is not null
    group by name, step // $width
"""
_EXTENT = "select min(step), max(step) from ({rows}) where value is not null"


@dataclass(frozen=True)
class _Cells:
    """The cells: a row is a tensor, a column one or several steps."""

    names: list[str]
    starts: Floats
    width: int
    """The most steps that a column may hold."""
    is_binned: bool
    values: Floats
    """The values; NaN if there is no finite one."""
    wrong: np.ndarray[Any, np.dtype[np.bool_]]


def figure_height(rows: int) -> float:
    """Return the height of a figure with some rows, in inches."""
    return min(_MOST_HEIGHT, max(_LEAST_HEIGHT, 1.4 + _ROW * rows))


def _past_scores(values: Floats) -> Floats:
    """Return the distance of each value from its row's past; 0 if it is usual, or if the past is too short."""
    scores, pasts = np.empty_like(values), [array("d") for _ in values]
    for at, column in enumerate(values.T):
        known = np.array([len(past) for past in pasts])
        scores[:, at] = past_scores(column, pasts, _FEWEST)[0] * known / (known + _UNSURE)
    usual = np.isfinite(values) & ~(np.absolute(scores) >= _USUAL)
    return np.where(usual, 0.0, scores)


def draw_heatmap(trial: Trial, chosen: Selection, ax: Any, own_past: bool = True) -> Any:
    """Draw the heat map; see `TrialPlots.heatmap`."""
    most = int(_WIDTH * 70) if ax is None else pixels(ax)[0]
    cells = _read(trial, chosen, most)
    if own_past:
        cells = replace(cells, values=_past_scores(cells.values))
    label = "deviations from its own past" if own_past else chosen.value_label
    ax = new_axes(ax, _WIDTH, figure_height(len(cells.names)))
    edges, saved = with_gaps(cells.starts)
    values = np.full((len(cells.names), len(saved)), np.nan)
    wrong = np.zeros(values.shape, bool)
    values[:, saved], wrong[:, saved] = cells.values, cells.wrong
    rows = np.arange(len(cells.names) + 1)

    norm, colors, is_log = _past_scale() if own_past else _scale(cells.values)
    image = ax.pcolorfast(edges, rows, np.ma.masked_invalid(values), cmap=colors, norm=norm)
    image.set_gid("values")
    ax.set_facecolor(NOT_SAVED)
    marks: dict[str, Any] = {}
    if is_log and _overlay(ax, edges, rows, (values == 0) & ~wrong, ZERO, "zero"):
        marks["zero"] = patch(ZERO)
    if _overlay(ax, edges, rows, wrong, NOT_FINITE, "not finite cells"):
        marks[NOT_FINITE_LABEL] = patch(NOT_FINITE)
        mark_steps(ax, (edges[:-1] + edges[1:])[wrong.any(axis=0)] / 2)
    if np.any(np.isnan(values) & ~wrong):
        marks[NOT_SAVED_LABEL] = patch(NOT_SAVED)
    ax.set(ylim=(len(cells.names), 0), xlim=(edges[0], edges[-1]), xlabel=_step_label(chosen, cells))
    label_rows(ax, cells.names, ax.bbox.height / ax.figure.dpi)
    set_title(ax, shown(f"{trial.name}: {chosen.value_label} of {chosen.what}"))
    add_legend(
        ax,
        list(marks.values()),
        list(marks),
        loc="lower right",
        bbox_to_anchor=(1, 1.0),
        ncols=3,
        borderaxespad=0.7,  # in font sizes, above the marks of steps
        borderpad=0.1,
    )
    _add_scale(ax, image, cells.values, label)
    return ax


def _read(trial: Trial, chosen: Selection, most: int) -> _Cells:
    first, last = run_reader_of(trial).sql(_EXTENT.format(rows=chosen.rows), chosen.parameters).fetchall()[0]
    if first is None:
        raise nothing_saved(chosen)
    width = max(1, -(-(last - first + 1) // most))
    if width > 1:
        # Steps may be far apart, so they are counted.
        counted = f"select count(distinct step) from ({chosen.rows}) where value is not null"
        width = 1 if run_reader_of(trial).sql(counted, chosen.parameters).fetchall()[0][0] <= most else width
    found = trial.sql(_CELLS.format(rows=chosen.rows), {**chosen.parameters, "width": width}).to_arrow_table()
    names = found["name"].combine_chunks().dictionary_encode()
    row_of, known = names.indices.to_numpy(zero_copy_only=False), names.dictionary.to_pylist()
    steps = found["start"].to_numpy()
    # Tensors may begin at different steps of a column.
    bins, column_of = np.unique(steps // width, return_inverse=True)
    starts = np.full(len(bins), np.iinfo(np.int64).max)
    np.minimum.at(starts, column_of, steps)
    values = np.full((len(known), len(bins)), np.nan)
    wrong = np.zeros(values.shape, bool)
    values[row_of, column_of] = drawable(found["largest"].to_numpy())
    wrong[row_of, column_of] = found["wrong"].to_numpy() > 0
    places = np.full(len(known), np.inf)
    np.minimum.at(places, row_of, np.nan_to_num(found["place"].to_numpy().astype(float), nan=np.inf))
    by_place = sorted(range(len(known)), key=lambda row: (places[row], natural(known[row])))
    return _Cells(
        [known[row] for row in by_place],
        starts.astype(float),
        width,
        bool((found["last"].to_numpy() > steps).any()),
        values[by_place],
        wrong[by_place],
    )


def _past_scale() -> tuple[Any, Any, bool]:
    """Return the norm and the colors of scores: neutral near 0, and two ends."""
    norm = matplotlib("colors").Normalize(-_LARGEST_SCORE, _LARGEST_SCORE)
    return norm, matplotlib("").colormaps["RdBu_r"], False


def _scale(values: Floats) -> tuple[Any, Any, bool]:
    """Return the norm, the colors, and whether the scale is logarithmic."""
    colors, maps = matplotlib("colors"), matplotlib("").colormaps
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    if not len(finite):
        return colors.Normalize(0, 1), maps["viridis"], False
    if (finite < 0).any():
        most = float(np.percentile(np.abs(finite), 100 - _ROBUST)) or 1.0
        return colors.Normalize(-most, most), maps["PuOr_r"], False
    if len(positive):
        least, most = (float(each) for each in np.percentile(positive, [_ROBUST, 100 - _ROBUST]))
        if positive.max() > _LOG_FROM * positive.min():
            return colors.LogNorm(least, most if most > least else least * 10), maps["viridis"], True
    least, most = (float(each) for each in np.percentile(finite, [_ROBUST, 100 - _ROBUST]))
    return colors.Normalize(least, most if most > least else least + (abs(least) or 1.0)), maps["viridis"], False


def _overlay(ax: Any, edges: Floats, rows: Any, where: Any, color: str, gid: str) -> bool:
    """Draw cells in one color. Return whether there are any."""
    if not where.any():
        return False
    colors = matplotlib("colors").ListedColormap([color])
    ax.pcolorfast(edges, rows, np.ma.masked_where(~where, where.astype(float)), cmap=colors).set_gid(gid)
    return True


def _add_scale(ax: Any, image: Any, values: Floats, label: str) -> None:
    shown_values = values[np.isfinite(values) & (values != 0)]
    below = bool((shown_values < image.norm.vmin).any())
    above = bool((shown_values > image.norm.vmax).any())
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get((below, above), "neither")
    # The width is the same for few and for many rows.
    aspect = max(20.0, ax.bbox.height / ax.figure.dpi / _SCALE_WIDTH)
    with np.errstate(over="ignore"):  # a scale over hundreds of decades may overflow at its ends
        ax.figure.colorbar(image, ax=ax, label=label, extend=extend, pad=0.01, aspect=aspect)


def _step_label(chosen: Selection, cells: _Cells) -> str:
    if not cells.is_binned:
        return chosen.step_label
    return f"{chosen.step_label} (a column is up to {cells.width:,} steps, and shows the largest magnitude)"
