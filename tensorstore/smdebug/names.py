"""The modules of smdebug, with the modules that define their names here."""

from __future__ import annotations

from collections.abc import Mapping

_MODES = {"ModeKeys": "tensortrial.mode", "modes": "tensortrial.mode"}
_SAVE_CONFIG = {"SaveConfig": "tensortrial.config.save_config", "SaveConfigMode": "tensortrial.config.save_config"}
_REDUCTION_CONFIG = {"ReductionConfig": "tensortrial.config.reduction_config"}
_COLLECTION = {"Collection": "tensortrial.config.collection", "CollectionKeys": "tensortrial.config.collection"}


def _here(module: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"tensortrial.smdebug.{module}")


_REDUCTIONS = _here("constants", "ALLOWED_REDUCTIONS", "ALLOWED_NORMS")
_LOGGER = _here("constants", "get_logger")
# The actions of this project: SageMaker's, and the replacements of its mail and messages.
_ACTIONS = dict.fromkeys(
    ("ActionList", "Command", "Email", "SMS", "StopTraining", "Webhook"), "tensortrial.rules.action"
)


def _framework(module: str, *names: str) -> dict[str, str]:
    """Return the names of a framework: its hooks for scripts, and the other names of this project's hooks for it."""
    own = {**_here(module, *names, "get_hook"), **_here("trials", "create_trial")}
    return {**own, "*": f"tensortrial.hooks.{module}"}


FRAMEWORKS = {
    **{name: _framework(name, "Hook") for name in ("mxnet", "pytorch", "xgboost")},
    "tensorflow": {**_framework("tensorflow", "SessionHook", "EstimatorHook"), **_here("keras", "KerasHook")},
}
"""The names of each framework, which is imported with its alias: a missing framework is an error there."""
_SUBMODULES = ("collection", "hook", "singleton_utils", "utils")
_SUBMODULES_OF_TENSORFLOW = (*_SUBMODULES, "keras", "session")
# Documented modules without documented use in scripts. Their names raise errors when they are used.
_OF_CORE = ("access_layer", "config_constants", "hook", "json_config", "writer")

MODULES: Mapping[str, Mapping[str, str]] = {
    "smdebug": {**_SAVE_CONFIG, **_REDUCTION_CONFIG, **_COLLECTION, **_MODES, "__version__": "tensortrial"},
    **{f"smdebug.{name}": module for name, module in FRAMEWORKS.items()},
    **{f"smdebug.{name}.{part}": module for name, module in FRAMEWORKS.items() for part in _SUBMODULES},
    **{f"smdebug.tensorflow.{part}": FRAMEWORKS["tensorflow"] for part in _SUBMODULES_OF_TENSORFLOW},
    "smdebug.exceptions": _here("exceptions", "*"),
    "smdebug.trials": _here("trials", "LocalTrial", "S3Trial", "Trial", "create_trial"),
    "smdebug.trials.trial": _here("trials", "Trial"),
    "smdebug.trials.local_trial": _here("trials", "LocalTrial"),
    "smdebug.trials.s3_trial": _here("trials", "S3Trial"),
    "smdebug.trials.utils": _here("trials", "create_trial"),
    "smdebug.rules": {**_here("rules", "Rule", "invoke_rule"), "*": "tensortrial.rules"},
    "smdebug.rules.rule": _here("rules", "Rule"),
    "smdebug.rules.rule_invoker": _here("rules", "invoke_rule"),
    "smdebug.rules.req_tensors": {"RequiredTensors": "tensortrial.rules.req_tensors"},
    "smdebug.rules.action": _ACTIONS,
    "smdebug.analysis": {},
    "smdebug.analysis.utils": dict.fromkeys(("no_refresh", "refresh"), "tensortrial.read.opening"),
    "smdebug.core": {},
    **{f"smdebug.core.{name}": {} for name in _OF_CORE},
    "smdebug.core.collection": _COLLECTION,
    "smdebug.core.collection_manager": {"CollectionManager": "tensortrial.hooks.core.configuration.collections"},
    "smdebug.core.logger": _LOGGER,
    "smdebug.core.modes": _MODES,
    "smdebug.core.reduction_config": {**_REDUCTION_CONFIG, **_REDUCTIONS},
    "smdebug.core.reductions": _REDUCTIONS,
    "smdebug.core.save_config": _SAVE_CONFIG,
    "smdebug.core.tensor": {"StepState": "tensortrial.read.step_states", **_here("trials", "Tensor")},
    "smdebug.core.utils": _LOGGER,
    "smdebug.profiler": {},
    "smdebug.profiler.utils": _here("constants", "str2bool"),
}
"""The names of each module with the modules that define them; "*" stands for the other public names of a module.

They come from smdebug's documentation and from published scripts, not from its source.
"""

PARTLY_KNOWN = ("smdebug.analysis", "smdebug.core", "smdebug.profiler")
"""The packages from which any other name may be imported. Such a name raises an error when it is used."""
OPEN_PACKAGES = (*PARTLY_KNOWN, *(f"smdebug.{name}" for name in FRAMEWORKS), "smdebug.trials", "smdebug.rules")
"""The packages from which any other module may be imported."""
