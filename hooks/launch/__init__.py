"""Hooks for an unmodified script: `python -m tensortrial run train.py`.

No framework is imported before the script imports it. Afterwards the framework's module `hooks/<framework>/launched.py`
prepares for a training.
"""

from __future__ import annotations

from .installation import install
from .launch import Launch

__all__ = ["Launch", "install"]
