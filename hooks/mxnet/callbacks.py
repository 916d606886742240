"""Forward callbacks of Gluon blocks, which notify a hook.

MXNet also calls a block with symbols, to infer shapes or to build a graph. Callbacks ignore these calls. In a copied or
pickled block each callback is replaced by a function without effect from the standard library, because the copy is
another model, which must not write into the original's run.
"""

from __future__ import annotations

from typing import Any, Protocol

from ..core.callbacks import UncopiedCallback
from .arrays import is_symbolic


class ForwardObserver(Protocol):
    """The object that is notified of the forwards of blocks."""

    @property
    def saving_tensors(self) -> bool:
        """True if more than losses is due. If not, `end_forward` is not called."""

    def saves(self, name: str) -> bool:
        """Return whether anything is due of a block. If not, `capture_values` is not called."""

    def begin_forward(self, root: Any, inputs: Any) -> None:
        """Receive the inputs of a registered model before its forward."""

    def end_forward(self, root: Any) -> None:
        """Receive a registered model after its forward."""

    def capture_values(self, name: str, role: str, values: Any) -> None:
        """Receive a block's inputs (role `input`) before its forward, or outputs (`output`) after it."""


class _Callback(UncopiedCallback):
    __slots__ = ("_observer", "_subject")

    def __init__(self, observer: ForwardObserver, subject: Any) -> None:
        self._observer, self._subject = observer, subject


class BeginStep(_Callback):
    """The callback that begins a step before the forward of a root."""

    __slots__ = ()

    def __call__(self, block: Any, args: Any) -> None:
        if not is_symbolic(args):
            self._observer.begin_forward(self._subject, args)


class EndForward(_Callback):
    """The callback after the forward of a root."""

    __slots__ = ()

    def __call__(self, block: Any, args: Any, output: Any) -> None:
        if self._observer.saving_tensors and not is_symbolic(output):
            self._observer.end_forward(self._subject)


class InputCallback(_Callback):
    """The callback that captures the inputs of a block before its forward."""

    __slots__ = ()

    def __call__(self, block: Any, args: Any) -> None:
        if self._observer.saves(self._subject) and not is_symbolic(args):
            self._observer.capture_values(self._subject, "input", args)


class OutputCallback(_Callback):
    """The callback that captures the outputs of a block after its forward."""

    __slots__ = ()

    def __call__(self, block: Any, args: Any, output: Any) -> None:
        if self._observer.saves(self._subject) and not is_symbolic(output):
            self._observer.capture_values(self._subject, "output", output)
