"""The seconds between two samples of system metrics, as a hook's argument or the environment sets them."""

from __future__ import annotations

import math
import os
from typing import Any

from tensortrial.errors import ConfigurationError

from ..user_values import shown

VARIABLE = "TENSORTRIAL_SYSTEM_METRICS"
"""0 samples nothing, 1 every ten seconds, 30 every thirty, whatever a hook's argument says."""

DEFAULT_SECONDS = 10.0
_LEAST_SECONDS = 0.1
_WORDS = {"0": False, "false": False, "1": True, "true": True}


def parse_interval(value: Any) -> float | None:
    """Return the seconds between two samples: those of TENSORTRIAL_SYSTEM_METRICS, else those of a hook's argument.

    Returns:
        The seconds; None if nothing is sampled.

    Raises:
        ConfigurationError: It is neither True, False, None nor a number of seconds from 0.1 on.
    """
    value = os.environ.get(VARIABLE, "").strip() or value
    if isinstance(value, str):
        value = _WORDS.get(value.lower(), value)
    if value is None or isinstance(value, bool):
        return DEFAULT_SECONDS if value else None
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not _LEAST_SECONDS <= seconds < math.inf:
        raise ConfigurationError(
            f"system_metrics must be True, False or the seconds between two samples, {_LEAST_SECONDS} or more, got "
            f"{shown(value)}"
        )
    return seconds
