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
    from .read.late_worker import LateWorker
    from .read.opening import create_trial
    from .read.refreshing import no_refresh, refresh
    from .read.runs import Runs, open_runs
    from .read.step_states import StepState
    from .read.tensor import Tensor
    from .read.trial import Trial
    from .read.verify import Verification

_MODULE_OF = {
    "Collection": "config.collection",
    "CollectionKeys": "config.collection",
    "Comparison": "comparison",
    "Compaction": "maintenance.compaction",
    "Diagnosis": "diagnosis",
    "Difference": "comparison",
    "Export": "exports",
    "FirstDifference": "comparison",
    "LateWorker": "read.late_worker",
    "ModeKeys": "mode",
    "NamedQuery": "named_queries",
    "Notes": "maintenance.notes",
    "Page": "pages",
    "ReductionConfig": "config.reduction_config",
    "Repair": "maintenance.repair",
    "Run": "hooks.plain",
    "Runs": "read.runs",
    "SaveConfig": "config.save_config",
    "SaveConfigMode": "config.save_config",
    "StepState": "read.step_states",
    "Tensor": "read.tensor",
    "Trial": "read.trial",
    "Verification": "read.verify",
    "annotate": "maintenance.notes",
    "compare": "comparison",
    "compact": "maintenance.compaction",
    "create_trial": "read.opening",
    "diagnose": "diagnosis",
    "environment": "hooks.core.process.environment",
    "export": "exports",
    "list_queries": "named_queries",
    "modes": "mode",
    "no_refresh": "read.refreshing",
    "open_runs": "read.runs",
    "page": "pages",
    "query": "named_queries",
    "query_text": "named_queries",
    "refresh": "read.refreshing",
    "repair": "maintenance.repair",
    "verify": "maintenance.verification",
}

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
    return getattr(import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
