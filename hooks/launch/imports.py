"""Callbacks after the import of a module, for code that must not import the module itself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class ImportNotifier(MetaPathFinder):
    """A finder that calls functions after the import of modules. It does not replace modules or loaders."""

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[], None]] = {}
        """The functions that are called after the import, by the names of the modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        call = self.waiting.pop(fullname, None)
        if call is None:
            return None
        try:
            spec = importlib.util.find_spec(fullname)  # by the other finders
        except (ImportError, ValueError):
            spec = None
        loader: Any = None if spec is None else spec.loader
        if loader is None or not hasattr(loader, "exec_module"):
            self.waiting[fullname] = call
            return spec
        execute = loader.exec_module

        def notify(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            try:
                execute(module)
            except BaseException:
                self.waiting[fullname] = call  # the script may try again
                raise
            call()

        with suppress(AttributeError):  # of a loader without a dictionary, such as that of a frozen module
            loader.exec_module = notify
        return spec


_notifier = ImportNotifier()


def after_import(name: str, call: Callable[[], None]) -> None:
    """Call a function after a module is imported; immediately, if it already was.

    A second call for the same module replaces the first one.
    """
    if name in sys.modules:
        call()
        return
    _notifier.waiting[name] = call
    if _notifier not in sys.meta_path:
        sys.meta_path.insert(0, _notifier)
