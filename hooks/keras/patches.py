"""The temporary replacement of methods of Keras."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .backend import unconverted

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Returns the replacement of a method."""

_ABSENT = object()


@contextmanager
def patched(owner: Any, name: str, wrap: Wrap) -> Iterator[None]:
    """Replace the method `name` of a class or an object by `wrap(method)` inside the block.

    The owner's `__setattr__` is not called, because it may track assignments.
    """
    assign, remove = (
        (type.__setattr__, type.__delattr__) if isinstance(owner, type) else (object.__setattr__, object.__delattr__)
    )
    before = vars(owner).get(name, _ABSENT)
    assign(owner, name, unconverted(wrap(getattr(owner, name))))
    try:
        yield
    finally:
        if before is _ABSENT:
            remove(owner, name)
        else:
            assign(owner, name, before)


class SharedPatches:
    """Patches that are applied while at least one block, of any thread, needs them.

    Args:
        patches: Called when the first block begins. Returns the owner, the name and the wrapper of each method.
    """

    def __init__(self, patches: Callable[[], Iterable[tuple[Any, str, Wrap]]]) -> None:
        self._patches = patches
        self._lock = threading.Lock()
        self._blocks = 0
        self._applied = ExitStack()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the patches inside the block, unless another block has applied them already."""
        with self._lock:
            if not self._blocks:
                for owner, name, wrap in self._patches():
                    self._applied.enter_context(patched(owner, name, wrap))
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    self._applied.close()
