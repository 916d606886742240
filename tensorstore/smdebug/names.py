"""The modules of smdebug, and where each of their names is defined here."""

from __future__ import annotations

from collections.abc import Mapping

_HERE = "tensortrial.smdebug"

_MODES = {"ModeKeys": "tensortrial.mode", "modes": "tensortrial.mode"}
_SAVE_CONFIG = {"SaveConfig": "tensortrial.config.save_config", "SaveConfigMode": "tensortrial.config.save_config"}
_REDUCTION_CONFIG = {"ReductionConfig": "tensortrial.config.reduction_config"}
_COLLECTION = {"Collection": "tensortrial.config.collection", "CollectionKeys": "tensortrial.config.collection"}


def _constants(*names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"{_HERE}.constants")


_REDUCTIONS = _constants("ALLOWED_REDUCTIONS", "ALLOWED_NORMS")
_LOGGER = _constants("get_logger")
_TRIAL = {"Trial": f"{_HERE}.trials"}
_LOCAL_TRIAL = {"LocalTrial": f"{_HERE}.trials"}
_S3_TRIAL = {"S3Trial": f"{_HERE}.trials"}
_CREATE_TRIAL = {"create_trial": f"{_HERE}.trials"}
_RULE = {"Rule": f"{_HERE}.rules"}
_INVOKER = {"invoke_rule": f"{_HERE}.rules"}
_REQUIRED = {"RequiredTensors": "tensortrial.rules.req_tensors"}
# The actions of this project: SageMaker's, and those that take the place of its mail and messages.
_ACTIONS = dict.fromkeys(
    ("ActionList", "Command", "Email", "SMS", "StopTraining", "Webhook"), "tensortrial.rules.action"
)

FRAMEWORKS = {name: f"{_HERE}.{name}" for name in ("mxnet", "pytorch", "tensorflow", "xgboost")}
"""The module of each framework's hooks, which is imported with its alias: a missing framework is an error there."""
_SUBMODULES = ("collection", "hook", "singleton_utils", "utils")
_SUBMODULES_OF_TENSORFLOW = (*_SUBMODULES, "keras", "session")
# Documented, but what scripts use of them is not: their names raise errors when they are used.
_OF_CORE = ("access_layer", "config_constants", "hook", "json_config", "writer")

MODULES: Mapping[str, Mapping[str, str] | str] = {
    "smdebug": {**_SAVE_CONFIG, **_REDUCTION_CONFIG, **_COLLECTION, **_MODES, "__version__": "tensortrial"},
    **{f"smdebug.{name}": module for name, module in FRAMEWORKS.items()},
    **{f"smdebug.{name}.{part}": module for name, module in FRAMEWORKS.items() for part in _SUBMODULES},
    **{f"smdebug.tensorflow.{part}": FRAMEWORKS["tensorflow"] for part in _SUBMODULES_OF_TENSORFLOW},
    "smdebug.exceptions": f"{_HERE}.exceptions",
    "smdebug.trials": {**_CREATE_TRIAL, **_LOCAL_TRIAL, **_S3_TRIAL, **_TRIAL},
    "smdebug.trials.trial": _TRIAL,
    "smdebug.trials.local_trial": _LOCAL_TRIAL,
    "smdebug.trials.s3_trial": _S3_TRIAL,
    "smdebug.trials.utils": _CREATE_TRIAL,
    "smdebug.rules": {**_RULE, **_INVOKER, "*": "tensortrial.rules"},
    "smdebug.rules.rule": _RULE,
    "smdebug.rules.rule_invoker": _INVOKER,
    "smdebug.rules.req_tensors": _REQUIRED,
    "smdebug.rules.action": _ACTIONS,
    "smdebug.analysis": {},
    "smdebug.analysis.utils": dict.fromkeys(("no_refresh", "refresh"), "tensortrial.read.refreshing"),
    "smdebug.core": {},
    **{f"smdebug.core.{name}": {} for name in _OF_CORE},
    "smdebug.core.collection": _COLLECTION,
    "smdebug.core.collection_manager": {"CollectionManager": "tensortrial.hooks.core.configuration.collections"},
    "smdebug.core.logger": _LOGGER,
    "smdebug.core.modes": _MODES,
    "smdebug.core.reduction_config": {**_REDUCTION_CONFIG, **_REDUCTIONS},
    "smdebug.core.reductions": _REDUCTIONS,
    "smdebug.core.save_config": _SAVE_CONFIG,
    "smdebug.core.tensor": {"StepState": "tensortrial.read.step_states", "Tensor": f"{_HERE}.trials"},
    "smdebug.core.utils": _LOGGER,
    "smdebug.profiler": {},
    "smdebug.profiler.utils": _constants("str2bool"),
}
"""The names of each module with the modules that define them, all public names of one module, or "*" for the rest.

They are what smdebug documents, and what scripts that were published for it use. Its source is not read for them.
"""

PARTLY_KNOWN = ("smdebug.analysis", "smdebug.core", "smdebug.profiler")
"""The packages of which any other name may be imported, and raises an error when it is used."""
OPEN_PACKAGES = (*PARTLY_KNOWN, *(f"smdebug.{name}" for name in FRAMEWORKS), "smdebug.trials", "smdebug.rules")
"""The packages of which any other module may be imported."""
