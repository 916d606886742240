"""The page: runs in the browser, served on loopback, read-only, and live. It needs the extra `page`.

The package can be called, because its function has its name: `tensortrial.page(runs)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from .serving import Page, page

__all__ = ["Page", "page"]


class _CallablePackage(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Page:
        return page(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
