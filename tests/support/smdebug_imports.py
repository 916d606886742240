"""Imports of runs that `smdebug_runs` wrote, and the collections of these runs."""

from __future__ import annotations

from typing import Any

import tensortrial
from support.smdebug_runs import OldRun
from tensortrial.importers.smdebug import import_run

NULLS = dict.fromkeys(("PREDICT", "GLOBAL"))
EVERY = {"save_interval": 2, "save_steps": [], "start_step": 0, "end_step": None}
COLLECTIONS = {
    "weights": {
        "include_regex": ["^(?!gradient).*weight"],
        "tensor_names": ["Net_fc.weight", "w:0"],
        "reduction_config": {"save_raw_tensor": False, "reductions": "min,l1_norm,abs_max", "save_shape": False},
        "save_config": {"TRAIN": EVERY, "EVAL": {**EVERY, "save_interval": 1}, **NULLS},
        "save_histogram": True,
    },
    "losses": {"include_regex": ["[Ll]oss"], "tensor_names": ["loss"], "reduction_config": None, "save_config": None},
    "default": {"include_regex": [], "tensor_names": []},
}


def imported(old: OldRun, new: str, **options: Any) -> tensortrial.Trial:
    """Import a run and open it."""
    return tensortrial.create_trial(import_run(old.folder, new, progress=False, **options))


def everything(trial: tensortrial.Trial) -> dict[Any, Any]:
    """Return the index and the values of a run, without value locations."""
    rows = trial.sql('select * exclude (chunk, "offset", row_group, "row", parts) from tensors order by all').fetchall()
    values = trial.sql("select * from tensor_values order by all").fetchall()
    return {"rows": [str(row) for row in rows], "values": values}
