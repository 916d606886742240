"""A static picture of a run, for documents without interaction."""

from __future__ import annotations

import io
import warnings
from typing import Any

from ..errors import ConfigurationError
from ..read.trial import Trial
from .drawing import matplotlib, require_matplotlib
from .heatmap import draw_heatmap, figure_height
from .scalars import draw_scalars
from .selection import Selection, select

_WIDTH, _DPI = 10.0, 80
# A picture is drawn without a request, so it is left out for a long run.
_MOST_CELLS = 2_000_000


def picture_of(trial: Trial) -> bytes | None:
    """Return a PNG of the norms of a run's gradients or other tensors, or of its scalars.

    Returns:
        The picture; None if the run has neither, or is long.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    require_matplotlib()
    if len(trial) * len(trial.steps(show_incomplete_steps=True)) > _MOST_CELLS:
        return None
    for names, statistic in (("gradients", "l2"), (None, "l2"), (None, None)):
        try:
            return _drawn(trial, select([trial], names, statistic, "GLOBAL", None, None))
        except ConfigurationError:
            continue  # the run has none of these
    return None


def _drawn(trial: Trial, chosen: Selection) -> bytes:
    is_scalars = chosen.statistic == "value"
    height = 4.0 if is_scalars else figure_height(len(chosen.names))
    # Without pyplot, because a notebook would then show the figure, too.
    figure: Any = matplotlib("figure").Figure(figsize=(_WIDTH, height), dpi=_DPI, layout="constrained")
    if is_scalars:
        draw_scalars(trial, chosen, 0.0, figure.subplots())
    else:
        draw_heatmap(trial, chosen, figure.subplots())
    made = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of characters that the font lacks
        figure.savefig(made, format="png")
    return made.getvalue()
