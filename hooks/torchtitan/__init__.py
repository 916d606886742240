"""The logger for torchtitan.

from tensortrial.hooks.torchtitan import Logger

container.add_logger(Logger("runs/llama"))  # torchtitan.components.metrics.LoggerContainer
"""

from __future__ import annotations

from .logger import Logger

__all__ = ["Logger"]
