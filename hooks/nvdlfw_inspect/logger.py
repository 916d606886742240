"""The logger for DLFW-Inspect, which receives its statistics."""

from __future__ import annotations

from typing import Any

from tensortrial.errors import importing

from ..library.hook_owner import HookOwner
from ..plain import Run

with importing("nvdlfw-inspect", "nvdlfw-inspect", "the logger for DLFW-Inspect"):
    from nvdlfw_inspect.logging import BaseLogger


class Logger(HookOwner, BaseLogger):  # type: ignore[misc]
    """A logger that saves the statistics of DLFW-Inspect as scalars of a run.

    Args:
        out_dir: The folder or URL of the run. Default: the environment variable TENSORTRIAL_OUT_DIR, else `tensortrial`
            in the working directory, with a number if a run is there.
        hook: A `tensortrial.Run` of your own, instead of `out_dir` and `options`.
        **options: Further arguments of `tensortrial.Run`.

    Raises:
        ConfigurationError: Both `hook` and arguments for a new hook were given.
    """

    _hook_type = Run

    def log_scalar(self, name: str, value: float, iteration: int, **_: Any) -> None:
        """Save a number."""
        self.hook.save_scalar(name, value, step=iteration)
