"""Plots of runs with matplotlib, which the extra `plot` installs: `trial.plot.heatmap("gradients", "l2")`.

`Trial.plot` and `Runs.plot` return the objects whose methods call the functions that draw.
"""

from ..read.plots import RunsPlots, TrialPlots
from .drawing import require_matplotlib
from .heatmap import draw_heatmap
from .histograms import draw_histograms
from .raw_value import draw_raw_value
from .scalars import draw_scalars
from .selection import selection_of

__all__ = [
    "RunsPlots",
    "TrialPlots",
    "draw_heatmap",
    "draw_histograms",
    "draw_raw_value",
    "draw_scalars",
    "require_matplotlib",
    "selection_of",
]
