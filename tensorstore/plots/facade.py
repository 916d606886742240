"""`trial.plot` and `runs.plot`: the plots of one run and of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..mode import ModeKeys
from ..read import plots
from ..read.plots import Names
from ..read.runs import Runs
from ..read.trial import Trial
from ..snapshot.saved_steps import StepRange
from .drawing import require_matplotlib
from .heatmap import draw_heatmap
from .histograms import draw_histograms
from .raw_value import draw_raw_value
from .scalars import draw_scalars
from .selection import select

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GLOBAL = ModeKeys.GLOBAL


class TrialPlots(plots.TrialPlots):
    """The plots of one run. `Trial.plot` creates it.

    Each method draws into `ax`, or into a new figure, and returns the Axes, so that everything can be changed
    afterwards. Gaps between saved steps are grey; NaN and infinities are marked.

    Args:
        trial: The run.
    """

    def __init__(self, trial: Trial) -> None:
        require_matplotlib()
        self._trial = trial

    def heatmap(
        self,
        names: Names = None,
        statistic: str = "l2",
        *,
        mode: ModeKeys | str = GLOBAL,
        worker: str | None = None,
        steps: StepRange | None = None,
        own_past: bool = True,
        ax: Axes | None = None,
    ) -> Axes:
        chosen = select([self._trial], names, statistic, mode, worker, steps).with_raw(self._trial)
        drawn: Axes = draw_heatmap(self._trial, chosen, ax, own_past)
        return drawn

    def scalars(
        self,
        names: Names = None,
        statistic: str | None = None,
        *,
        mode: ModeKeys | str = GLOBAL,
        worker: str | None = None,
        steps: StepRange | None = None,
        smoothing: float = 0.0,
        ax: Axes | None = None,
    ) -> Axes:
        chosen = select([self._trial], names, statistic, mode, worker, steps).with_raw(self._trial)
        drawn: Axes = draw_scalars(self._trial, chosen, smoothing, ax)
        return drawn

    def histograms(
        self,
        name: str,
        *,
        mode: ModeKeys | str = GLOBAL,
        worker: str | None = None,
        steps: StepRange | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        self._trial.tensor(name)
        drawn: Axes = draw_histograms(self._trial, select([self._trial], [name], None, mode, worker, steps), name, ax)
        return drawn

    def tensor(
        self,
        name: str,
        step: int | None = None,
        *,
        mode: ModeKeys | str = GLOBAL,
        worker: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        drawn: Axes = draw_raw_value(self._trial, name, step, ModeKeys.parse(mode), worker, ax)
        return drawn


class RunsPlots(plots.RunsPlots):
    """The plots of several runs. `Runs.plot` creates it.

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
        mode: ModeKeys | str = GLOBAL,
        worker: str | None = None,
        steps: StepRange | None = None,
        smoothing: float = 0.0,
        ax: Axes | None = None,
    ) -> Axes:
        trials = [self._runs.trial(name) for name in self._runs.names]
        try:
            chosen = select(trials, names, statistic, mode, worker, steps)
        finally:
            for trial in trials:
                trial.close()
        drawn: Axes = draw_scalars(self._runs, chosen, smoothing, ax)
        return drawn
