"""The raw value of a tensor at a step: a line, or an image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import Array
from ..errors import ConfigurationError
from ..mode import ModeKeys
from ..read.trial import Trial, run_reader_of
from .drawing import (
    LINES,
    NOT_FINITE,
    NOT_FINITE_LABEL,
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
from .numbers import as_floats

_WIDTH, _HEIGHT = 8.0, 4.5
_LAST = (
    "select max({step}) from tensors where name = $name and ($mode = 'GLOBAL' or mode = $mode) "
    "and ($worker is null or worker = $worker) and chunk is not null"
)


def draw_raw_value(trial: Trial, name: str, step: int | None, mode: ModeKeys, worker: str | None, ax: Any) -> Any:
    """Draw the value; see `TrialPlots.tensor`."""
    tensor = trial.tensor(name)
    if step is None:
        step = _last_step(trial, name, mode, worker)
    raw = tensor.value(step, mode, worker)
    value = as_floats(raw)
    if value is None:
        raise ConfigurationError(f"{name!r} has elements of dtype {raw.dtype}, which cannot be drawn")
    if not value.size:
        raise ConfigurationError(f"{name!r} has no elements at step {step}: its shape is {list(value.shape)}")
    ax = new_axes(ax, _WIDTH, _HEIGHT)
    counted = "global step" if mode is ModeKeys.GLOBAL else f"{mode.name} step"
    set_title(ax, f"{shown(name)}\n{counted} {step:,}, {raw.dtype} {list(raw.shape)}")
    if value.ndim < 2:
        _draw_line(ax, value.reshape(-1))
    else:
        _draw_image(ax, value)
    return ax


def _last_step(trial: Trial, name: str, mode: ModeKeys, worker: str | None) -> int:
    query = _LAST.format(step="global_step" if mode is ModeKeys.GLOBAL else "mode_step")
    found = run_reader_of(trial).sql(query, {"name": name, "mode": mode.name, "worker": worker}).fetchall()[0][0]
    if found is None:
        raise ConfigurationError(
            f"no raw value of {name!r} was saved; plot.scalars({name!r}) draws scalars, and with a statistic, such as "
            "'l2', what was saved of tensors"
        )
    return int(found)


def _draw_line(ax: Any, value: Array) -> None:
    size = -(-len(value) // pixels(ax)[0])
    least, most, wrong = _pooled(value[None], 1, size)
    at = np.arange(len(least[0])) * size
    ax.fill_between(at, least[0], most[0], step="mid", color=LINES[0], alpha=0.3, linewidth=0)
    middle = (least[0] / 2 + most[0] / 2) if size > 1 else least[0]
    ax.stairs(middle, np.append(at, at[-1] + size) - size / 2, color=LINES[0], linewidth=1.2, gid="values")
    ax.axhline(0, color="#999999", linewidth=0.6, zorder=0)
    ax.set(xlabel="index", ylabel="value", xlim=(-0.5 * size, at[-1] + 0.5 * size))
    ax.spines[["top", "right"]].set_visible(False)
    if (marks := mark_steps(ax, at[wrong[0]].astype(float))) is not None:
        add_legend(ax, [marks], [NOT_FINITE_LABEL], loc="lower right", bbox_to_anchor=(1, 1.02), borderaxespad=0.0)


def _draw_image(ax: Any, value: Array) -> None:
    flat = value.reshape(value.shape[0], -1)
    width, height = pixels(ax)
    rows, columns = -(-flat.shape[0] // height), -(-flat.shape[1] // width)
    least, most, wrong = _pooled(flat, rows, columns)
    kept = np.where(np.abs(least) > np.abs(most), least, most)
    extent = (-0.5, flat.shape[1] - 0.5, flat.shape[0] - 0.5, -0.5)
    options: dict[str, Any] = {"aspect": "auto", "interpolation": "nearest", "extent": extent}
    image = ax.imshow(np.ma.masked_invalid(kept), **options, **_colors(kept))
    image.set_gid("values")
    if wrong.any():
        only = matplotlib("colors").ListedColormap([NOT_FINITE])
        ax.imshow(np.ma.masked_where(~wrong, wrong.astype(float)), cmap=only, **options).set_gid("not finite cells")
        handles = [patch(NOT_FINITE)]
        add_legend(ax, handles, [NOT_FINITE_LABEL], loc="lower right", bbox_to_anchor=(1, 1.02), borderaxespad=0.0)
    if np.isfinite(kept).any():
        ax.figure.colorbar(image, ax=ax, label="value", pad=0.01)
    ax.set(xlabel=_dimensions(value.shape, 1), ylabel=_dimensions(value.shape[:1], 0))
    if rows > 1 or columns > 1:
        ax.set_xlabel(f"{ax.get_xlabel()}\na pixel is {rows} × {columns} elements, and shows the largest magnitude")


def _colors(values: Floats) -> dict[str, Any]:
    """Return colors that diverge at zero, if there are values on both sides."""
    finite = values[np.isfinite(values)]
    if len(finite) and finite.min() < 0 < finite.max():
        most = float(np.abs(finite).max())
        return {"cmap": "PuOr_r", "vmin": -most, "vmax": most}
    return {"cmap": "viridis"}


def _pooled(value: Array, rows: int, columns: int) -> tuple[Floats, Floats, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Return the least and the largest finite element of each block, or NaN, and a mask of blocks with others."""
    padding = [(0, -value.shape[0] % rows), (0, -value.shape[1] % columns)]
    shape = -(-value.shape[0] // rows), rows, -(-value.shape[1] // columns), columns
    finite = np.isfinite(value)

    def fold(values: Array, none: float, function: Any) -> Any:
        return function(np.pad(values, padding, constant_values=none).reshape(shape), axis=(1, 3))

    value = drawable(value)
    least = fold(np.where(finite, value, math.inf), math.inf, np.min)
    most = fold(np.where(finite, value, -math.inf), -math.inf, np.max)
    wrong = fold(~finite, False, np.max)
    none = np.isinf(least)
    return np.where(none, np.nan, least), np.where(none, np.nan, most), wrong


def _dimensions(shape: Sequence[int], first: int) -> str:
    sizes = " × ".join(f"{size:,}" for size in shape[first:])
    last = len(shape) - 1
    return f"dimension {first} ({sizes})" if first == last else f"dimensions {first} to {last} ({sizes})"
