"""An argument that acts while a comparison is under way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Meanwhile:
    """No regular expressions. A comparison reads them once it knows the state of both runs, and `action` is called."""

    action: Callable[[], Any]

    def __iter__(self) -> Iterator[str]:
        self.action()
        return iter(())
