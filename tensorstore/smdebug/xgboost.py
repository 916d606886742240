"""The names of smdebug.xgboost."""

from __future__ import annotations

from collections.abc import Iterable

from tensortrial.dtypes import Array
from tensortrial.hooks import xgboost
from tensortrial.hooks.xgboost import (
    Collection,
    CollectionKeys,
    ModeKeys,
    ReductionConfig,
    SaveConfig,
    SaveConfigMode,
    del_hook,
    modes,
    set_hook,
)

from .hooks import ScriptHook, getter
from .trials import create_trial

__all__ = [
    "Collection",
    "CollectionKeys",
    "Hook",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "del_hook",
    "get_hook",
    "modes",
    "set_hook",
]


class Hook(ScriptHook, xgboost.Hook):
    """The XGBoost hook, as scripts for smdebug use it: each `full_shap/<feature>` is the whole matrix."""

    def _record_full_shap(self, columns: Iterable[str], values: Array) -> None:
        for name in columns:
            self._record(name, values)


get_hook = getter(Hook.create_from_json_file, creates=True)
