"""The plots of `Trial.plot` and `Runs.plot`. The package that draws is a layer above this one, loaded on first use."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..mode import GLOBAL, ModeKeys
from ..snapshot.saved_steps import StepRange

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Names = str | Iterable[str] | None


class RunsPlots:
    """The plots of one or several runs. `Runs.plot` creates it.

    Each method draws into `ax`, or into a new figure, and returns the Axes, so that everything can be changed
    afterwards. Gaps between saved steps are gray; NaN and infinities are marked.

    Args:
        source: The runs.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def __init__(self, source: Any) -> None:
        self._source, self._drawing = source, import_module("tensortrial.plots")
        self._drawing.require_matplotlib()

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
        """Draw scalars, or a statistic of tensors, as lines over steps: a line for each tensor and mode.

        With several workers, and where there are more steps than pixels, a line is the mean, and a band reaches from
        the smallest to the largest value. The axis is logarithmic where all values are positive and span more than a
        factor of 100. Each of several runs has a color. Runs without any of these tensors are left out.

        Args:
            names: A name, a collection, a pattern such as `*`, or several; None for the losses, or the metrics if none.
            statistic: A statistic such as l2; None for the values of scalars.
            mode: The mode that steps are counted in; GLOBAL draws all modes over the global step.
            worker: One worker; None for all.
            steps: Only steps first <= step < end, as a pair; None on a side for no limit.
            smoothing: The weight of the past in an exponential mean, from 0 (none) to below 1. The values themselves
                stay visible behind it.
            ax: The Axes to draw into; None for a new figure.

        Returns:
            The Axes.

        Raises:
            ConfigurationError: No tensor matches, none has values, or `smoothing` is out of range.
        """
        chosen = self._drawing.selection_of(self._source, names, statistic, mode, worker, steps)
        return self._drawing.draw_scalars(self._source, chosen, smoothing, ax)


class TrialPlots(RunsPlots):
    """The plots of one run. `Trial.plot` creates it.

    Args:
        source: The run.
    """

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
        """Draw a statistic of many tensors: a row a tensor, in the order of execution, and a column a step.

        The color is the distance from the tensor's own past, as on the page, neutral below 3 deviations; or the value.
        Where there are more steps than pixels, a column is several steps and shows the largest magnitude.

        Args:
            names: A collection such as `gradients`, a pattern such as `gradient/*`, or several; None for all tensors.
            statistic: A saved statistic or one that follows from saved ones, or `zero_fraction`.
            mode: The mode that steps are counted in.
            worker: One worker; None for all: then a cell shows the value of the largest magnitude.
            steps: Only steps first <= step < end, as a pair; None on a side for no limit.
            own_past: Draw the distance from the median of earlier steps in units of their spread; False: the values.
            ax: The Axes to draw into; None for a new figure.

        Returns:
            The Axes.

        Raises:
            ConfigurationError: No tensor matches, or none has the statistic.
        """
        chosen = self._drawing.selection_of(self._source, names, statistic, mode, worker, steps)
        return self._drawing.draw_heatmap(self._source, chosen, ax, own_past)

    def histograms(
        self,
        name: str,
        *,
        mode: ModeKeys | str = GLOBAL,
        worker: str | None = None,
        steps: StepRange | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the distribution of a tensor over steps, as ridges from the first step (top) to the last (bottom).

        Saved histograms are drawn; without them, histograms of the raw values with 60 bins. At most 32 evenly
        distributed steps are drawn. Heights are square roots of the density, and all ridges equally high.

        Args:
            name: The name of the tensor.
            mode: The mode that steps are counted in.
            worker: One worker; None for the first one that has a value at a step.
            steps: Only steps first <= step < end, as a pair; None on a side for no limit.
            ax: The Axes to draw into; None for a new figure.

        Returns:
            The Axes.

        Raises:
            TensorUnavailable: No tensor of this name was saved.
            ConfigurationError: The tensor has neither histograms nor raw values.
        """
        name = self._source.tensor(name).name
        chosen = self._drawing.selection_of(self._source, [name], None, mode, worker, steps)
        return self._drawing.draw_histograms(self._source, chosen, name, ax)

    def tensor(
        self,
        name: str,
        step: int | None = None,
        *,
        mode: ModeKeys | str = GLOBAL,
        worker: str | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """Draw the raw value of a tensor at a step: a line for one dimension, an image for more.

        The rows of the image are the first dimension, the columns all others, the last one fastest. Where there are
        more elements than pixels, a pixel shows the element of the largest magnitude. `scalars` draws the statistics
        of a tensor over steps.

        Args:
            name: The name of the tensor.
            step: The step; None for the last one with a raw value.
            mode: The mode that the step is counted in.
            worker: One worker; None for the first one that has the value.
            ax: The Axes to draw into; None for a new figure.

        Returns:
            The Axes.

        Raises:
            TensorUnavailable: No tensor of this name was saved.
            TensorUnavailableForStep: Only statistics were saved at the step.
            StepUnavailable: The step was not saved.
            ConfigurationError: No raw value was saved at any step, or the elements are not numbers.
        """
        name = self._source.tensor(name).name
        chosen = self._drawing.selection_of(self._source, [name], None, mode, worker, None)
        return self._drawing.draw_raw_value(self._source, name, step, chosen.mode, worker, ax)
