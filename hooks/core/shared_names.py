"""The names that the module of every framework has, next to its own `Hook`, `Collection` and `get_hook`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensortrial.config.collection import CollectionKeys
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.mode import ModeKeys, modes

from .current_hook import del_hook, set_hook

if TYPE_CHECKING:
    from tensortrial.read.trial import Trial

__all__ = [
    "CollectionKeys",
    "ModeKeys",
    "ReductionConfig",
    "SaveConfig",
    "SaveConfigMode",
    "create_trial",
    "del_hook",
    "modes",
    "set_hook",
]


def create_trial(*args: Any, **options: Any) -> Trial:
    """Open a run for reading, as `tensortrial.create_trial` does.

    Args:
        *args: The positional arguments of `tensortrial.create_trial`.
        **options: Its keyword arguments.

    Returns:
        The run.
    """
    from tensortrial.read import opening  # needs DuckDB, and a training job seldom reads

    return opening.create_trial(*args, **options)
