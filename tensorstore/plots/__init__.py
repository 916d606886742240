"""Plots of runs with matplotlib, which the extra `plot` installs: `trial.plot.heatmap("gradients", "l2")`.

`Trial.plot` and `Runs.plot` return the objects whose methods draw.
"""

from .facade import RunsPlots, TrialPlots

__all__ = ["RunsPlots", "TrialPlots"]
