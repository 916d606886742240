"""The hook for PyTorch: `import tensortrial.hooks.pytorch as tt`."""

from __future__ import annotations

from ..core import shared_names
from ..core.shared_names import *

from .hook import Collection, Hook, get_hook  # isort: skip  it says how to install a missing torch
from .attention import attention_statistics
from .replay import Replay

__all__ = ["Collection", "Hook", "Replay", "attention_statistics", "get_hook"]
__all__ += shared_names.__all__
