"""Lines over steps: scalars, or statistics of tensors, of one run or of several."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from ..errors import ConfigurationError
from ..mode import ModeKeys
from ..read.runs import Runs
from ..read.trial import Trial, run_reader_of
from ..snapshot.workers import natural
from .columns import gaps
from .drawing import (
    LINES,
    NOT_FINITE_LABEL,
    NOT_SAVED,
    NOT_SAVED_LABEL,
    ZERO,
    Floats,
    add_legend,
    drawable,
    mark_steps,
    matplotlib,
    new_axes,
    patch,
    pixels,
    set_title,
    shown,
)
from .selection import Selection, nothing_saved
from .thinning import finite_mean, thinned

_WIDTH, _HEIGHT = 9.0, 4.0
_STYLES = ("-", "--", ":", "-.")
_LOG_FROM = 100.0
_FEW = 50
"""The most points of a line that also has markers."""
_MANY = 12
"""More runs than this, or more tensors of one, are colored by the order of their last values."""
_AT_THE_ENDS = 5
"""The number of highest and of lowest lines in the legend."""
_MOST_GAPS = 200
_LINES = """
    select
        {run} as run, name, mode, min(step) as start, {mean} as mean,
        min(value) filter (where isfinite(value)) as least, max(value) filter (where isfinite(value)) as most,
        count(*) filter (where not isfinite(value)) as wrong
    from ({rows})
    group by 1, 2, 3, bucket order by 1, 2, 3, 4
"""
_STEPS = "select {run} as run, mode, global_step from steps group by all order by global_step"
_ORDER = (ModeKeys.TRAIN.name, ModeKeys.EVAL.name, ModeKeys.PREDICT.name, ModeKeys.GLOBAL.name)


@dataclass(frozen=True)
class _Line:
    """One tensor of one run in one mode."""

    run: str
    name: str
    mode: str
    steps: Floats
    mean: Floats
    least: Floats
    most: Floats
    wrong: np.ndarray[Any, np.dtype[np.bool_]]
    gaps: list[tuple[float, float]]
    """The ranges of steps that are missing."""


def draw_scalars(source: Trial | Runs, chosen: Selection, smoothing: float, ax: Any) -> Any:
    """Draw the lines; see `TrialPlots.scalars`."""
    if not isinstance(smoothing, Real) or not 0 <= smoothing < 1:
        raise ConfigurationError(f"smoothing must be at least 0 and below 1, got {smoothing!r}")
    lines = _read(source, chosen, int(_WIDTH * 100) if ax is None else pixels(ax)[0])
    ax = new_axes(ax, _WIDTH, _HEIGHT)
    keys = list(dict.fromkeys(_color_key(line) for line in lines))
    styles = sorted({_style_key(line, lines) for line in lines})
    is_many = len(keys) > _MANY
    if is_many:
        lines.sort(key=_last_value, reverse=True)
        keys = list(dict.fromkeys(_color_key(line) for line in lines))
    handles, labels = [], []
    for line in lines:
        number, style = keys.index(_color_key(line)), styles.index(_style_key(line, lines))
        if is_many:
            color = matplotlib("").colormaps["viridis"](number / (len(keys) - 1))
        else:
            # If there are more lines than colors, their styles differ.
            color, style = LINES[number % len(LINES)], style + number // len(LINES)
        handles.append(_draw(ax, line, color, _STYLES[style % len(_STYLES)], smoothing))
        labels.append(_label(line, lines))
    if is_many:
        handles, labels = _ends(handles, labels)
        by_style = {styles.index(_style_key(line, lines)): line for line in lines}
        for style, line in sorted(by_style.items()) if len(styles) > 1 else ():
            handles.append(matplotlib("lines").Line2D([], [], color=ZERO, linestyle=_STYLES[style % len(_STYLES)]))
            labels.append(" ".join(_style_parts(line, lines)))
    _scale(ax, lines)
    wrong = np.unique(np.concatenate([line.steps[line.wrong] for line in lines]))
    if (marks := mark_steps(ax, wrong)) is not None:
        handles.append(marks)
        labels.append(NOT_FINITE_LABEL)
    if _shade_gaps(ax, lines):
        handles.append(patch(NOT_SAVED))
        labels.append(NOT_SAVED_LABEL)
    _label_axes(ax, source, chosen, lines)
    if len(handles) > 1:
        add_legend(ax, handles, labels, loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return ax


def _last_value(line: _Line) -> float:
    finite = line.mean[np.isfinite(line.mean)]
    return float(finite[-1]) if len(finite) else -np.inf


def _ends(handles: list[Any], labels: list[str]) -> tuple[list[Any], list[str]]:
    """Return the entries of a legend for the highest and the lowest of many lines."""
    first, last = slice(_AT_THE_ENDS), slice(-_AT_THE_ENDS, None)
    between = f"{len(handles) - 2 * _AT_THE_ENDS:,} between"
    blank = matplotlib("patches").Patch(visible=False)
    return [*handles[first], blank, *handles[last]], [*labels[first], between, *labels[last]]


def _read(source: Trial | Runs, chosen: Selection, most: int) -> list[_Line]:
    many = isinstance(source, Runs)
    saved = f"select * from ({chosen.rows}) where value is not null"
    thin = thinned(saved, "run, name, mode" if many else "name, mode")
    query = _LINES.format(run="run" if many else "''", rows=thin, mean=finite_mean("value"))
    queries = source.queries if isinstance(source, Runs) else run_reader_of(source)
    rows = queries.sql(query, {**chosen.parameters, "points": most}).fetchall()
    if not rows:
        raise nothing_saved(chosen)
    found: dict[tuple[str, str, str], list[Any]] = {}
    for run, name, mode, *row in rows:
        found.setdefault((run, name, mode), []).append(row)
    steps = _steps_of_modes(source) if chosen.mode is ModeKeys.GLOBAL else {}
    keys = sorted(found, key=lambda key: (key[0], natural(key[1]), _ORDER.index(key[2])))
    return [_line(key, found[key], steps) for key in keys]


def _line(key: tuple[str, str, str], points: list[Any], steps_of: dict[tuple[str, str], list[int]]) -> _Line:
    run, _, mode = key
    steps, mean, least, most, wrong = np.array(points, float).T  # None is NaN
    others = [each for (of, by), some in steps_of.items() if of == run and by != mode for each in some]
    mean, least, most = drawable(mean), drawable(least), drawable(most)
    return _Line(*key, steps, mean, least, most, wrong > 0, gaps(steps, np.sort(np.array(others, float))))


def _steps_of_modes(source: Trial | Runs) -> dict[tuple[str, str], list[int]]:
    """Return the global steps of each mode of each run."""
    found: dict[tuple[str, str], list[int]] = {}
    query = _STEPS.format(run="run" if isinstance(source, Runs) else "''")
    for run, mode, step in source.sql(query).fetchall():
        found.setdefault((run, mode), []).append(step)
    return found


def _draw(ax: Any, line: _Line, color: str, style: str, smoothing: float) -> Any:
    steps, (mean, least, most) = _broken(line)
    if (most > least).any():
        ax.fill_between(steps, least, most, color=color, alpha=0.2, linewidth=0)
    options: dict[str, Any] = {"color": color, "linestyle": style, "linewidth": 1.4}
    # A value between two missing ones is not on a line.
    known = np.isfinite(mean)
    alone = known & ~np.append(False, known[:-1]) & ~np.append(known[1:], False)
    dots = known if np.count_nonzero(known) <= _FEW else alone
    options |= {"marker": "o", "markersize": 3, "markevery": np.flatnonzero(dots).tolist()}
    if smoothing:
        ax.plot(steps, mean, **{**options, "alpha": 0.3, "linewidth": 1.0})
        mean = _smoothed(mean, smoothing)
        options |= {"linewidth": 1.8, "markevery": []}
    return ax.plot(steps, mean, gid=f"{line.run}\n{line.name}\n{line.mode}", **options)[0]


def _broken(line: _Line) -> tuple[Floats, tuple[Floats, Floats, Floats]]:
    """Return steps and values with NaN in gaps, so that no line is drawn across them."""
    begins = [begin for begin, _ in line.gaps]
    at = np.searchsorted(line.steps, begins)
    mean, least, most = (np.insert(each, at, np.nan) for each in (line.mean, line.least, line.most))
    return np.insert(line.steps, at, begins), (mean, least, most)


def _smoothed(values: Floats, smoothing: float) -> Floats:
    """Return the exponential mean of the finite values so far, divided by the sum of its weights."""
    found, total, weight = np.full(len(values), np.nan), 0.0, 0.0
    for i, value in enumerate(values):
        if np.isfinite(value):
            total, weight = smoothing * total + value, smoothing * weight + 1
            found[i] = total / weight
    return found


def _scale(ax: Any, lines: list[_Line]) -> None:
    least = np.concatenate([line.least for line in lines])
    most = np.concatenate([line.most for line in lines])
    least, most = least[np.isfinite(least)], most[np.isfinite(most)]
    if len(least) and least.min() > 0 and most.max() > _LOG_FROM * least.min():
        ax.set_yscale("log")


def _shade_gaps(ax: Any, lines: list[_Line]) -> bool:
    """Shade the ranges in which all lines lack steps. Return whether there are any."""
    if len({line.run for line in lines}) > 1:
        return False
    missing = [each for each in lines[0].gaps if all(_lacks(line, *each) for line in lines)][:_MOST_GAPS]
    for begin, end in missing:
        ax.axvspan(begin, end, color=NOT_SAVED, linewidth=0, zorder=0, gid="not saved")
    return bool(missing)


def _lacks(line: _Line, begin: float, end: float) -> bool:
    return bool(np.searchsorted(line.steps, begin) == np.searchsorted(line.steps, end))


def _label_axes(ax: Any, source: Trial | Runs, chosen: Selection, lines: list[_Line]) -> None:
    names = {line.name for line in lines}
    what = shown(next(iter(names))) if len(names) == 1 else shown(chosen.what)
    of = source.name if isinstance(source, Trial) else f"{len({line.run for line in lines})} runs"
    statistic = "" if chosen.statistic == "value" else f"{chosen.value_label} of "
    set_title(ax, f"{shown(of)}: {statistic}{what}")
    ax.set_xlabel(chosen.step_label)
    ax.set_ylabel(f"{statistic}{what}" if len(names) == 1 else chosen.value_label, parse_math=False)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.3)
    ax.margins(x=0.01)


def _color_key(line: _Line) -> str:
    return line.run or line.name


def _style_key(line: _Line, lines: list[_Line]) -> str:
    names = f"{line.name}\n" if line.run and len({each.name for each in lines}) > 1 else ""
    return f"{names}{_ORDER.index(line.mode)}"


def _style_parts(line: _Line, lines: list[_Line]) -> list[str]:
    """Return the parts of a label that lines of one style share."""
    names = [line.name] if line.run and len({each.name for each in lines}) > 1 else []
    return names + ([f"({line.mode})"] if len({each.mode for each in lines}) > 1 else [])


def _label(line: _Line, lines: list[_Line]) -> str:
    return " ".join([line.run or line.name, *_style_parts(line, lines)])
