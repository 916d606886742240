"""The logger for NVIDIA's DLFW-Inspect, which watches the tensors of Transformer Engine's layers.

from tensortrial.hooks.nvdlfw_inspect import Logger

nvdlfw_inspect.api.initialize("config.yaml", statistics_logger=Logger("runs/net"))
"""

from __future__ import annotations

from .logger import Logger

__all__ = ["Logger"]
