"""The hook for scikit-learn: `import tensortrial.hooks.sklearn as tt`."""

from __future__ import annotations

from tensortrial.config.collection import Collection

from ..core import shared_names
from ..core.shared_names import *
from .hook import Hook, get_hook

__all__ = ["Collection", "Hook", "get_hook"]
__all__ += shared_names.__all__
