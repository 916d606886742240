"""`runs.plot`: what can be drawn of several runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..mode import ModeKeys
from ..read.catalogue.views import StepRange
from ..read.runs import Runs
from .drawing import require_matplotlib
from .scalars import draw_scalars
from .selection import Names, select

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class RunsPlots:
    """Plots of several runs. Made by `Runs.plot`.

    Args:
        runs: The runs.
    """

    def __init__(self, runs: Runs) -> None:
        require_matplotlib()
        self._runs = runs

    def scalars(
        self,
        names: Names = None,
        statistic: str | None = None,
        *,
        mode: ModeKeys | str = ModeKeys.GLOBAL,
        worker: str | None = None,
        steps: StepRange | None = None,
        smoothing: float = 0.0,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw scalars, or a statistic of tensors, of all runs as lines over steps: a colour for each run.

        Runs that have none of the tensors are left out. See `TrialPlots.scalars` for what a line shows.

        Args:
            names: A name, a collection such as `losses`, a pattern, or several; None for all tensors that have values.
            statistic: A statistic such as l2; None for the values of scalars.
            mode: The mode that steps are counted in; GLOBAL draws all modes over the global step.
            worker: One worker; None for all.
            steps: Only steps first <= step < end, as a pair; None on a side for no limit.
            smoothing: The weight of the past in an exponential mean, from 0 (none) to below 1.
            ax: The Axes to draw into; None for a new figure.

        Returns:
            The Axes.

        Raises:
            ConfigurationError: No run has a tensor that matches, none has values, or `smoothing` is out of range.
        """
        trials = [self._runs.trial(name) for name in self._runs.names]
        try:
            chosen = select(trials, names, statistic, mode, worker, steps)
        finally:
            for trial in trials:
                trial.close()
        drawn: Axes = draw_scalars(self._runs, chosen, smoothing, ax)
        return drawn
