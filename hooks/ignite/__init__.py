"""The handler for PyTorch Ignite.

from tensortrial.hooks.ignite import Handler

Handler("runs/net").attach(trainer, model=net, evaluators={"validation": evaluator})
"""

from __future__ import annotations

from .handler import Handler

__all__ = ["Handler"]
