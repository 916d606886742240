"""tensortrial: a tensor store for training runs.

    trial = tensortrial.create_trial("runs/digits")
    trial.tensor("gradient/Net_fc.weight").values()
    trial.sql("select name, avg(value) from reductions where reduction = 'l2' group by name")

DuckDB and frameworks are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .comparison import Comparison, Difference, FirstDifference, compare
    from .config.collection import Collection, CollectionKeys
    from .config.reduction_config import ReductionConfig
    from .config.save_config import SaveConfig, SaveConfigMode
    from .diagnosis import Diagnosis, diagnose
    from .exports import Export, export
    from .hooks.core.process.environment import environment
    from .hooks.plain import Run
    from .maintenance.compaction import Compaction, compact
    from .maintenance.notes import Notes, annotate
    from .maintenance.repair import Repair, repair
    from .maintenance.verification import verify
    from .mode import ModeKeys, modes
    from .named_queries import NamedQuery, list_queries, query, query_text
    from .pages import Page, page
    from .read.opening import create_trial, no_refresh, refresh
    from .read.runs import Runs, open_runs
    from .read.step_states import LateWorker, StepState
    from .read.tensor import Tensor
    from .read.trial import Trial
    from .read.verify import Verification

_NAMES_OF = {
    "comparison": ("Comparison", "Difference", "FirstDifference", "compare"),
    "config.collection": ("Collection", "CollectionKeys"),
    "config.reduction_config": ("ReductionConfig",),
    "config.save_config": ("SaveConfig", "SaveConfigMode"),
    "diagnosis": ("Diagnosis", "diagnose"),
    "exports": ("Export", "export"),
    "hooks.core.process.environment": ("environment",),
    "hooks.plain": ("Run",),
    "maintenance.compaction": ("Compaction", "compact"),
    "maintenance.notes": ("Notes", "annotate"),
    "maintenance.repair": ("Repair", "repair"),
    "maintenance.verification": ("verify",),
    "mode": ("ModeKeys", "modes"),
    "named_queries": ("NamedQuery", "list_queries", "query", "query_text"),
    "pages": ("Page", "page"),
    "read.opening": ("create_trial", "no_refresh", "refresh"),
    "read.runs": ("Runs", "open_runs"),
    "read.step_states": ("LateWorker", "StepState"),
    "read.tensor": ("Tensor",),
    "read.trial": ("Trial",),
    "read.verify": ("Verification",),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

__all__ = [
    "Collection",
    "CollectionKeys",
    "Compaction",
    "Comparison",
    "Diagnosis",
    "Difference",
    "Export",
    "FirstDifference",
    "LateWorker",
    "ModeKeys",
    "NamedQuery",
    "Notes",
    "Page",
    "ReductionConfig",
    "Repair",
    "Run",
    "Runs",
    "SaveConfig",
    "SaveConfigMode",
    "StepState",
    "Tensor",
    "Trial",
    "Verification",
    "__version__",
    "annotate",
    "compact",
    "compare",
    "create_trial",
    "diagnose",
    "environment",
    "export",
    "list_queries",
    "modes",
    "no_refresh",
    "open_runs",
    "page",
    "query",
    "query_text",
    "refresh",
    "repair",
    "verify",
]


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
