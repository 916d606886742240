"""The hook for MXNet: `import tensortrial.hooks.mxnet as tt`."""

from __future__ import annotations

from ..core import shared_names
from ..core.shared_names import *
from .hook import Collection, Hook, get_hook

__all__ = ["Collection", "Hook", "get_hook"]
__all__ += shared_names.__all__
