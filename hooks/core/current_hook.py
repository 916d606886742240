"""The current hook of the process, for code that did not make it."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from tensortrial.errors import RunExists
from tensortrial.redaction import without_credentials

from .configuration.sagemaker import has_hook_configuration
from .log import logger

_hook: Any = None
# The recorders of hooks that were garbage-collected: a finalizer only notes them, because it may run anywhere.
_abandoned: deque[Any] = deque()


def current() -> Any:
    """Return the hook that was made last, unless `set_hook` chose another; None if there is none."""
    return _hook


def get_or_create(create: Callable[[str | None], Any], json_config_path: str | None, creates: bool) -> Any:
    """Return the current hook. With `creates`, make one if there is none, or if it is closed.

    A closed hook is returned if the configuration allows no other run. No hook is made without a configuration:
    `create` receives the path of one in JSON, or None for the configured one.
    """
    wanted = creates and (_hook is None or _is_closed(_hook))
    if wanted and (json_config_path or has_hook_configuration()):
        with contextlib.nullcontext() if _hook is None else contextlib.suppress(RunExists):
            set_hook(create(json_config_path))
    return _hook


class GetHook(Protocol):
    """The `get_hook` of a framework."""

    def __call__(
        self, hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
    ) -> Any: ...


def getter(create: Callable[[str | None], Any]) -> GetHook:
    """Return the `get_hook` of a framework. `create` makes a hook of it from the path of a JSON configuration."""

    def get_framework_hook(
        hook_type: str | None = None, json_config_path: str | None = None, create_if_not_exists: bool = False
    ) -> Any:
        """Return the current hook.

        Args:
            hook_type: Has no effect; smdebug has this argument.
            json_config_path: The JSON configuration of a new hook. Default: see `Hook.create_from_json_file`.
            create_if_not_exists: Make a hook if there is none, and a JSON configuration exists.

        Returns:
            The hook that was made last or passed to `set_hook`; None if there is none.
        """
        return get_or_create(create, json_config_path, create_if_not_exists)

    get_framework_hook.__name__ = get_framework_hook.__qualname__ = "get_hook"
    return get_framework_hook


def set_hook(hook: Any) -> None:
    """Make a hook the current one.

    Args:
        hook: The hook; None for none.
    """
    global _hook
    _hook = hook


def made(hook: Any, kept_by_callbacks: Any = None) -> None:
    """Make a new hook the current one, and close the runs of hooks that were garbage-collected.

    If the hook's callbacks do not refer to the hook itself, `kept_by_callbacks` is the object that they refer to.
    """
    previous = _hook
    kept = hook if kept_by_callbacks is None else kept_by_callbacks
    weakref.finalize(kept, _abandoned.append, hook.recorder).atexit = False
    set_hook(hook)
    unclosed = previous is not None and not _is_closed(previous)
    del previous
    if unclosed:
        gc.collect()  # a hook and its model may refer to each other
    while _abandoned:
        recorder = _abandoned.popleft()
        if not recorder.closed:
            logger.info(
                "closing the run in %s: its hook was garbage-collected", without_credentials(recorder.run.out_dir)
            )
            recorder.close()


def del_hook() -> None:
    """Close the current hook, if there is one. Afterwards there is none."""
    global _hook
    if _hook is not None:
        _hook.close()
    _hook = None


def _is_closed(hook: Any) -> bool:
    recorder = getattr(hook, "recorder", None)
    return recorder is not None and recorder.closed
