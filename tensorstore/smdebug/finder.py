"""The finder of smdebug's modules, which creates each alias at its first import."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from .names import FRAMEWORKS, MODULES, OPEN_PACKAGES, PARTLY_KNOWN


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """A finder that creates each alias at its first import, so that a script that only reads loads no framework."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in MODULES and not _is_part(fullname, OPEN_PACKAGES):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        if spec.name in MODULES:
            return None
        from .missing import MissingModule

        return MissingModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = f"The names of {module.__name__}, from tensortrial."
        names = _names_of(module.__name__)

        def lookup(name: str) -> Any:
            home = names.get(name)
            if home is None:
                return _missing(module.__name__, name)
            value = getattr(importlib.import_module(home), name)
            setattr(module, name, value)
            return value

        module.__getattr__ = lookup  # type: ignore[method-assign]
        module.__dir__ = lambda: sorted({*vars(module), *names})  # type: ignore[method-assign]
        module.__all__ = sorted(names)  # type: ignore[attr-defined]


def _names_of(alias: str) -> Mapping[str, str]:
    """Return the modules that define the names of an alias."""
    # Any other module of a framework has all names of the framework.
    homes = dict(MODULES[alias] if alias in MODULES else FRAMEWORKS.get(alias.split(".")[1], {}))
    rest = homes.pop("*", None)
    return homes if rest is None else {**dict.fromkeys(importlib.import_module(rest).__all__, rest), **homes}


def _missing(alias: str, name: str) -> Any:
    # A framework's own modules have no other names, because scripts check them by hasattr.
    if name.startswith("__") or not (_is_part(alias, PARTLY_KNOWN) or alias not in MODULES):
        raise AttributeError(f"module {alias!r} has no attribute {name!r}")
    from .missing import Missing

    return Missing(f"{alias}.{name}")


def _is_part(name: str, packages: Sequence[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)
