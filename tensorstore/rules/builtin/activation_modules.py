"""The activation functions among a run's modules, by the classes that the PyTorch hook stored."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Literal

from ...read.trial import Trial, run_reader_of

RELU = frozenset({"ReLU", "ReLU6"})
TANH = frozenset({"Tanh"})
SIGMOID = frozenset({"Sigmoid"})


def patterns(trial: Trial, classes: Container[str], side: Literal["input", "output"]) -> tuple[str, ...]:
    """Return regular expressions that match the inputs or the outputs of the modules of some classes."""
    names = _names_of(trial, classes)
    return (f"^({'|'.join(map(re.escape, names))})_{side}(_|$)",) if names else ()


def _names_of(trial: Trial, classes: Container[str]) -> list[str]:
    found: set[str] = set()
    for info in run_reader_of(trial).snapshot.workers.infos:
        kept = info.environment.get("activations")
        if isinstance(kept, Mapping):
            found.update(name for name, kind in kept.items() if isinstance(kind, str) and kind in classes)
    return sorted(found)
