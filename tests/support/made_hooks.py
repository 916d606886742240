"""Hooks that are closed after their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensortrial import Trial, create_trial
from tensortrial.config.save_config import SaveConfig


@contextmanager
def made_hooks(make_hook: Callable[..., Any], out: str) -> Iterator[Callable[..., Any]]:
    """Return a function that makes hooks, which are closed after the block.

    By default they save each step into `out`.
    """
    made: list[Any] = []

    def make(out_dir: str = out, **options: Any) -> Any:
        options.setdefault("save_config", SaveConfig(save_interval=1))
        made.append(make_hook(out_dir, **options))
        return made[-1]

    try:
        yield make
    finally:
        for hook in made:
            hook.close()


def closed(hook: Any) -> Trial:
    """Close a hook, and return its run."""
    hook.close()
    return create_trial(hook.out_dir)
