"""The hook of smdebug.xgboost, whose other names are those of `tensortrial.hooks.xgboost`."""

from __future__ import annotations

from collections.abc import Iterable

from tensortrial.dtypes import Array
from tensortrial.hooks import xgboost

from .hooks import ScriptHook, getter


class Hook(ScriptHook, xgboost.Hook):
    """The XGBoost hook, as scripts for smdebug use it: each `full_shap/<feature>` is the whole matrix."""

    def _record_full_shap(self, columns: Iterable[str], values: Array) -> None:
        for name in columns:
            self._record(name, values)


get_hook = getter(Hook.create_from_json_file, creates=True)
