"""smdebug's names, for scripts that were written for it.

    import tensortrial.smdebug            # from here on `import smdebug.pytorch as smd` imports this project
    python -m tensortrial.smdebug train.py      # or run a script as it is

`import smdebug` imports an installed smdebug, unless `install(shadow=True)`, TENSORTRIAL_SHADOW_SMDEBUG=1 or running a
script as above shadows it.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Any

SHADOW_VARIABLE = "TENSORTRIAL_SHADOW_SMDEBUG"

# The names of each of smdebug's modules, with the modules that define them here, or all public names of one module.
_SETTINGS = {
    "SaveConfig": "tensortrial.config.save_config",
    "SaveConfigMode": "tensortrial.config.save_config",
    "ReductionConfig": "tensortrial.config.reduction_config",
    "Collection": "tensortrial.config.collection",
    "CollectionKeys": "tensortrial.config.collection",
    "ModeKeys": "tensortrial.mode",
    "modes": "tensortrial.mode",
}
_MODULES: dict[str, dict[str, str] | str] = {
    "smdebug": {**_SETTINGS, "__version__": "tensortrial"},
    "smdebug.mxnet": "tensortrial.hooks.mxnet",
    "smdebug.tensorflow": "tensortrial.hooks.tensorflow",
    "smdebug.pytorch": "tensortrial.hooks.pytorch",
    "smdebug.xgboost": "tensortrial.hooks.xgboost",
    "smdebug.trials": {"create_trial": "tensortrial.read.trial", "Trial": "tensortrial.read.trial"},
    "smdebug.exceptions": "tensortrial.errors",
    "smdebug.rules": "tensortrial.rules",
    "smdebug.rules.action": "tensortrial.rules.action",
    "smdebug.rules.req_tensors": "tensortrial.rules.req_tensors",
    "smdebug.analysis": {},
    "smdebug.analysis.utils": {"no_refresh": "tensortrial.read.refreshing", "refresh": "tensortrial.read.refreshing"},
    "smdebug.core": {},
    "smdebug.core.tensor": {"Tensor": "tensortrial.read.tensor", "StepState": "tensortrial.read.step_state"},
    "smdebug.core.modes": {"ModeKeys": "tensortrial.mode", "modes": "tensortrial.mode"},
    "smdebug.core.collection": {
        "Collection": "tensortrial.config.collection",
        "CollectionKeys": "tensortrial.config.collection",
    },
    "smdebug.core.collection_manager": {"CollectionManager": "tensortrial.hooks.core.collections"},
    "smdebug.core.save_config": {
        "SaveConfig": "tensortrial.config.save_config",
        "SaveConfigMode": "tensortrial.config.save_config",
    },
    "smdebug.core.reduction_config": {"ReductionConfig": "tensortrial.config.reduction_config"},
}


def install(shadow: bool = False) -> bool:
    """Make `smdebug` and its public submodules importable as aliases of this project.

    Args:
        shadow: Shadow an installed smdebug. By default it is left as it is, with a warning.

    Returns:
        Whether they are aliases of this project now.
    """
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return True
    if _is_installed():
        if not shadow:
            warnings.warn(
                "`import smdebug` imports the installed smdebug; to import tensortrial under this name, set "
                f"{SHADOW_VARIABLE}=1 or uninstall smdebug",
                stacklevel=2,
            )
            return False
        print("tensortrial: the installed smdebug is shadowed; `import smdebug` imports tensortrial", file=sys.stderr)
    for name in [name for name in sys.modules if name.partition(".")[0] == "smdebug"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder())
    return True


def modules() -> list[str]:
    """Return the names of smdebug's modules that have an alias here, sorted."""
    return sorted(_MODULES)


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("smdebug") is not None
    except ValueError:  # it is imported and has no spec
        return True


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Creates each alias at its first import, so that a script that only reads loads no framework."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in _MODULES)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        names = _MODULES[module.__name__]
        if isinstance(names, str):
            source = importlib.import_module(names)
            if names.startswith("tensortrial.hooks."):
                importlib.import_module("tensortrial.hooks.core.compatibility").store_as_smdebug()
            offered = getattr(source, "__all__", None) or [name for name in vars(source) if not name.startswith("_")]
            names = dict.fromkeys(offered, names)
        homes = names

        def lookup(name: str) -> Any:
            if name not in homes:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            value = getattr(importlib.import_module(homes[name]), name)
            setattr(module, name, value)
            return value

        module.__getattr__ = lookup  # type: ignore[method-assign]
        module.__all__ = sorted(homes)  # type: ignore[attr-defined]
        module.__doc__ = f"The names of {module.__name__}, from tensortrial."


install(shadow=os.environ.get(SHADOW_VARIABLE, "0") not in ("", "0"))
