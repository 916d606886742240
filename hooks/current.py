"""The current hook of the process, for code that did not make it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_hook: Any = None


def get_hook(
    hook_type: str | None = None,
    json_config_path: str | None = None,
    create_if_not_exists: bool = False,
    *,
    create: Callable[[str | None], Any] | None = None,
) -> Any:
    """The current hook, or None.

    With `create_if_not_exists` one is made from the JSON configuration, if there is none yet. `hook_type` is accepted
    for smdebug's sake: each framework's module has its own `get_hook`, which passes how to `create` one.
    """
    global _hook
    if _hook is None and create_if_not_exists and create is not None:
        _hook = create(json_config_path)
    return _hook


def set_hook(hook: Any) -> None:
    """Make `hook` the current hook."""
    global _hook
    _hook = hook


def del_hook() -> None:
    """Close the current hook, if there is one, and have none."""
    global _hook
    if _hook is not None:
        _hook.close()
    _hook = None
