"""The callbacks that a hook registers with a framework's modules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class UncopiedCallback:
    """A callback that a copied, pickled or saved module does not have.

    The copy is another module, which must not write into the run of the first. In the place of the callback it gets a
    function of the standard library that does nothing, so that it can be loaded where this package is not installed.
    """

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        # It takes any arguments, returns None, and can be pickled.
        return getattr, (contextlib.nullcontext(), "__exit__")
