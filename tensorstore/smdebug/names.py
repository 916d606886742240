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
_PATHS = _constants(
    "DEFAULT_WORKER_NAME",
    "DEFAULT_SAGEMAKER_OUTDIR",
    "DEFAULT_SAGEMAKER_TENSORBOARD_PATH",
    "DEFAULT_CONFIG_FILE_PATH",
    "CONFIG_FILE_PATH_ENV_STR",
    "TENSORBOARD_CONFIG_FILE_PATH_ENV_STR",
    "CHECKPOINT_CONFIG_FILE_PATH_ENV_VAR",
    "INCOMPLETE_STEP_WAIT_WINDOW_KEY",
)
_TRIALS = dict.fromkeys(("LocalTrial", "S3Trial", "Trial", "create_trial"), f"{_HERE}.trials")
_RULE = {"Rule": f"{_HERE}.rules"}
_INVOKER = {"invoke_rule": f"{_HERE}.rules"}
_REQUIRED = {"RequiredTensors": "tensortrial.rules.req_tensors"}
_ACTION = {
    "Action": "tensortrial.rules.action",
    "Actions": f"{_HERE}.rules",
    "Command": "tensortrial.rules.action",
    "StopTraining": "tensortrial.rules.action",
    "Webhook": "tensortrial.rules.action",
}

FRAMEWORKS = {name: f"{_HERE}.{name}" for name in ("mxnet", "pytorch", "tensorflow", "xgboost")}
"""The module of each framework's hooks, which is imported with its alias: a missing framework is an error there."""
_SUBMODULES = {
    "mxnet": ("collection", "hook", "singleton_utils", "utils"),
    "pytorch": ("collection", "hook", "singleton_utils", "utils"),
    "tensorflow": ("base_hook", "collection", "keras", "session", "estimator", "singleton_utils", "utils"),
    "xgboost": ("collection", "hook", "singleton_utils", "utils"),
}

MODULES: Mapping[str, Mapping[str, str] | str] = {
    "smdebug": {**_SAVE_CONFIG, **_REDUCTION_CONFIG, **_COLLECTION, **_MODES, "__version__": "tensortrial"},
    **{f"smdebug.{name}": module for name, module in FRAMEWORKS.items()},
    **{f"smdebug.{name}.{part}": FRAMEWORKS[name] for name, parts in _SUBMODULES.items() for part in parts},
    "smdebug.exceptions": f"{_HERE}.exceptions",
    "smdebug.trials": _TRIALS,
    "smdebug.trials.trial": {"Trial": f"{_HERE}.trials"},
    "smdebug.trials.local_trial": {"LocalTrial": f"{_HERE}.trials"},
    "smdebug.trials.s3_trial": {"S3Trial": f"{_HERE}.trials"},
    "smdebug.trials.utils": {"create_trial": f"{_HERE}.trials"},
    "smdebug.rules": {**_RULE, **_INVOKER, **_REQUIRED, "*": "tensortrial.rules"},
    "smdebug.rules.rule": _RULE,
    "smdebug.rules.rule_invoker": _INVOKER,
    "smdebug.rules.req_tensors": _REQUIRED,
    "smdebug.rules.action": _ACTION,
    "smdebug.rules.action.action": _ACTION,
    "smdebug.rules.action.stop_training_action": {"StopTraining": "tensortrial.rules.action"},
    "smdebug.analysis": {},
    "smdebug.analysis.utils": {
        "no_refresh": "tensortrial.read.refreshing",
        "refresh": "tensortrial.read.refreshing",
        **_constants("parse_bool"),
    },
    "smdebug.core": {},
    "smdebug.core.access_layer": {
        "has_training_ended": f"{_HERE}.constants",
        "training_has_ended": f"{_HERE}.constants:has_training_ended",
    },
    "smdebug.core.collection": _COLLECTION,
    "smdebug.core.collection_manager": {"CollectionManager": "tensortrial.hooks.core.collections"},
    "smdebug.core.config_constants": _PATHS,
    "smdebug.core.hook": {
        "BaseHook": "tensortrial.hooks.core.base_hook",
        "CallbackHook": "tensortrial.hooks.core.base_hook:BaseHook",
        **_COLLECTION,
        **_MODES,
    },
    "smdebug.core.json_config": {**_PATHS, **_MODES, **_SAVE_CONFIG, **_REDUCTION_CONFIG, **_constants("parse_bool")},
    "smdebug.core.logger": _LOGGER,
    "smdebug.core.modes": {**_MODES, **_constants("ALLOWED_MODES", "ALLOWED_MODE_NAMES", "str_to_mode_keys")},
    "smdebug.core.reduction_config": {**_REDUCTION_CONFIG, **_REDUCTIONS},
    "smdebug.core.reductions": _REDUCTIONS,
    "smdebug.core.save_config": {**_SAVE_CONFIG, **_MODES},
    "smdebug.core.tensor": {"StepState": "tensortrial.read.step_state", "Tensor": f"{_HERE}.trials", **_MODES},
    "smdebug.core.utils": {**_LOGGER, **_PATHS, **_constants("is_s3", "ensure_dir")},
    "smdebug.core.writer": {},
    "smdebug.profiler": {},
    "smdebug.profiler.utils": _constants("str2bool"),
}
"""The names of each module with the modules that define them, all public names of one module, or "*" for the rest."""

PARTLY_KNOWN = ("smdebug.core", "smdebug.profiler")
"""The packages of which any other name may be imported, and raises an error when it is used."""
OPEN_PACKAGES = (*PARTLY_KNOWN, *(f"smdebug.{name}" for name in FRAMEWORKS), "smdebug.trials", "smdebug.rules")
"""The packages of which any other module may be imported."""
