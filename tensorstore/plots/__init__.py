"""Plots of runs with matplotlib, which the extra `plot` installs: `trial.plot.heatmap("gradients", "l2")`.

`Trial.plot` and `Runs.plot` return the objects whose methods call the functions that draw, which are not public.
"""

from ..read.plots import RunsPlots, TrialPlots
from .drawing import require_matplotlib as require_matplotlib
from .heatmap import draw_heatmap as draw_heatmap
from .histograms import draw_histograms as draw_histograms
from .raw_value import draw_raw_value as draw_raw_value
from .scalars import draw_scalars as draw_scalars
from .selection import selection_of as selection_of

__all__ = ["RunsPlots", "TrialPlots"]
