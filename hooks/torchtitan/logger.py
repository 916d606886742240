"""The logger for torchtitan, which receives its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensortrial.errors import importing

from ..library.hook_owner import HookOwner
from ..library.integrations import numbers_in
from ..plain import Run

with importing("torchtitan", "torchtitan", "the logger for torchtitan"):
    from torchtitan.components.metrics import BaseLogger


class Logger(HookOwner, BaseLogger):  # type: ignore[misc]
    """A logger that saves the metrics of torchtitan as scalars of a run.

    Args:
        out_dir: The folder or URL of the run. Default: the environment variable TENSORTRIAL_OUT_DIR, else `tensortrial`
            in the working directory, with a number if a run is there.
        hook: A `tensortrial.Run` of your own, instead of `out_dir` and `options`.
        **options: Further arguments of `tensortrial.Run`.

    Raises:
        ConfigurationError: Both `hook` and arguments for a new hook were given.
    """

    _hook_type = Run

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Save metrics.

        Args:
            metrics: Numbers by their names. Other values are left out.
            step: The step.
        """
        self.hook.log(numbers_in(metrics), step=step)
