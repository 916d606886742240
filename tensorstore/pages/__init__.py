"""The page: runs in the browser, served on loopback, and live. It needs the extra `page`."""

from __future__ import annotations

from .serving import Page, page

__all__ = ["Page", "page"]
