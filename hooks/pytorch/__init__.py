"""The hook for PyTorch: `import tensortrial.hooks.pytorch as tt`."""

from __future__ import annotations

from ..core import shared_names
from ..core.shared_names import *
from .attention import attention_statistics
from .hook import Collection, Hook, get_hook
from .replay import Replay

__all__ = ["Collection", "Hook", "Replay", "attention_statistics", "get_hook"]
__all__ += shared_names.__all__
