"""Collections that are told parts of a model instead of names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tensortrial.config.collection import Collection


class ModuleCollection(Collection):
    """A collection that includes what goes in and out of modules, layers or blocks, whatever the framework calls
    them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules: list[tuple[Any, bool, bool]] = []

    def add_tensors_of(self, module: Any, inputs: bool, outputs: bool) -> None:
        """Include what goes into a module, what comes out of it, or both, once it is known what it is called."""
        self._modules.append((module, inputs, outputs))

    @property
    def is_empty(self) -> bool:
        return super().is_empty and not self._modules

    def resolve(self, names: Mapping[Any, str]) -> None:
        """Turn modules into the names of their tensors, where it is known by now what the modules are called."""
        unknown = []
        for module, inputs, outputs in self._modules:
            if module not in names:
                unknown.append((module, inputs, outputs))
                continue
            wanted = [("input", inputs), ("output", outputs)]
            self.include(f"^{re.escape(names[module])}_{kind}_" for kind, asked in wanted if asked)
        self._modules = unknown

    def forget_parts(self) -> None:
        """Hold no module any more."""
        self._modules = []
