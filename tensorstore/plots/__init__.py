"""Plots of runs with matplotlib, which the extra `plot` installs: `trial.plot.heatmap("gradients", "l2")`.

`Trial.plot` and `Runs.plot` return the objects whose methods draw.
"""

from .run_plots import RunsPlots
from .trial_plots import TrialPlots

__all__ = ["RunsPlots", "TrialPlots"]
