"""The parts that all plots share: matplotlib, axes, colors for color-blind people, marks, legends."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ConfigurationError, importing

Floats = np.ndarray[Any, np.dtype[np.float64]]

# Okabe and Ito, "Color Universal Design" (2008), without yellow, which is invisible on white, and purple, close to
# NOT_FINITE.
LINES = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#000000")
NOT_FINITE = "#E6007E"
"""The color of NaN and of infinities, as on the page."""
NOT_SAVED = "#DDDDDD"
ZERO = "#000000"
NOT_FINITE_LABEL = "NaN or infinite"
NOT_SAVED_LABEL = "not saved"
_LONGEST_NAME = 48
_MOST_ENTRIES = 20
_LABEL_SIZE = 7.0


_LARGEST = 1e300


def drawable(values: Any) -> Floats:
    """Return values limited to a magnitude of 1e300, because matplotlib computes differences, which could overflow."""
    return np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values)


def require_matplotlib() -> None:
    """Raise MissingExtra if matplotlib is not installed."""
    matplotlib("")


def matplotlib(module: str) -> Any:
    """Return a module of matplotlib, imported on first use; "" for the package itself."""
    with importing("matplotlib", "plot", "a plot"):
        found = importlib.import_module(f"matplotlib.{module}" if module else "matplotlib")
    return found


def new_axes(ax: Any, width: float, height: float) -> Any:
    """Return the Axes that were passed, or the Axes of a new figure of this width and height in inches."""
    if ax is not None and pixels(ax):  # which checks the argument
        return ax
    return matplotlib("pyplot").subplots(figsize=(width, height), layout="constrained")[1]


def pixels(ax: Any) -> tuple[int, int]:
    """Return the width and the height of the Axes in pixels, at least 50. Raises ConfigurationError for no Axes."""
    if not isinstance(ax, matplotlib("axes").Axes):
        raise ConfigurationError(f"ax must be one Axes of matplotlib, or None for a new figure, got {ax!r:.200}")
    return max(50, int(ax.bbox.width)), max(50, int(ax.bbox.height))


def shown(name: str) -> str:
    """Return a name on one line, without its middle if it is long. Names may come from an untrusted run."""
    text = "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in name)
    if len(text) <= _LONGEST_NAME:
        return text
    half = _LONGEST_NAME // 2
    return f"{text[:half]}…{text[-half:]}"


def set_title(ax: Any, title: str) -> None:
    """Set the title, in which `$` is literal."""
    ax.set_title(title, loc="left", fontsize="medium", parse_math=False)


def add_legend(ax: Any, handles: Sequence[Any], labels: Sequence[str], **options: Any) -> None:
    """Add a legend outside of the plot; entries after the first 20 are counted."""
    if not handles:
        return
    kept, texts = list(handles[:_MOST_ENTRIES]), [shown(label) for label in labels[:_MOST_ENTRIES]]
    if len(handles) > _MOST_ENTRIES:
        kept.append(matplotlib("patches").Patch(visible=False))
        texts.append(f"and {len(handles) - _MOST_ENTRIES:,} more")
    # matplotlib leaves out labels that begin with _, and reads $ as mathematics.
    legend = ax.legend(kept, ["…"] * len(kept), fontsize="small", frameon=False, **options)
    for entry, text in zip(legend.get_texts(), texts, strict=True):
        entry.set_parse_math(False)
        entry.set_text(text)


def label_rows(ax: Any, names: Sequence[str], height_inches: float) -> None:
    """Label rows 0, 1, … at their centers. If the height is too small, only some are labeled."""
    most = max(2, int(height_inches * 72 / (_LABEL_SIZE * 1.25)))
    stride = -(-len(names) // most)
    at = range(0, len(names), stride)
    ax.set_yticks([row + 0.5 for row in at], [shown(names[row]) for row in at], fontsize=_LABEL_SIZE, parse_math=False)


def mark_steps(ax: Any, steps: Sequence[float] | Floats) -> Any:
    """Mark steps with NaN or infinities above the plot. Return the marks; None if there are none."""
    if not len(steps):
        return None
    return ax.plot(
        steps,
        np.full(len(steps), 1.0),
        marker=7,  # a triangle whose tip is down
        markersize=6,
        linestyle="none",
        color=NOT_FINITE,
        transform=ax.get_xaxis_transform(),
        clip_on=False,
        label=NOT_FINITE_LABEL,
        gid="not finite",
    )[0]


def patch(color: str) -> Any:
    """Return a rectangle for a legend."""
    return matplotlib("patches").Patch(facecolor=color, edgecolor="none")
