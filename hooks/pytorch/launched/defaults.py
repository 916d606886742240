"""The arguments of a launched script's hook if there is no configuration: statistics, next to the losses."""

from __future__ import annotations

from typing import Any

from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig

LIBRARY_DEFAULTS: dict[str, Any] = {
    "include_collections": ["weights", "gradients"],
    "reduction_config": ReductionConfig(["min", "max", "mean", "std"], norms=["l2"]),
}
"""With a library that says at which steps it logs."""

DEFAULTS = {**LIBRARY_DEFAULTS, "save_config": SaveConfig(save_interval=50, warmup_steps=10)}
"""With a loop of the script's own."""
