"""The sequences of a run of Aim: the values of one name in one context, by step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...mode import ModeKeys
from ..modes import MODE_OF_WORD, PREFERENCE
from ..point_list import PointList
from ..times import nanoseconds
from .encoding import Marker, Part
from .rocksdb import RocksDB

_SUBSET = "subset"
_SYSTEM = "__system__"  # the prefix of the names of system metrics
_DISTRIBUTION = "aim.distribution"


@dataclass(frozen=True)
class Traced:
    """A sequence: the values that a run tracked under one name in one context."""

    context: int
    """The number by which the database knows the context."""
    tracked: str
    """The name in Aim."""
    name: str
    """The name of the tensor."""
    mode: ModeKeys
    first: bool
    """True for Aim's first layout, in which the step is a part of the path."""

    def add_to(self, found: PointList, database: RocksDB, run: str) -> None:
        """Add the values.

        Raises:
            CorruptFile: The database is damaged.
        """
        path: tuple[Part, ...] = ("seqs", *(() if self.first else ("v2",)), "chunks", run, self.context, self.tracked)
        steps = {} if self.first else _column(database, path, "step")
        times = _column(database, path, "time")
        for index, value in _values(database, path):
            step = index if self.first else steps.get(index)
            saved_at = nanoseconds(times.get(index))
            if isinstance(value, Mapping):
                found.add_histogram(self.name, step, value, saved_at, self.mode)
            else:
                found.add(self.name, step, value, saved_at, self.mode)


def traced(traces: Mapping[Any, Any], contexts: Mapping[Any, Any]) -> tuple[list[Traced], int]:
    """Return the sequences that a run's database names, and the number of those with system metrics."""
    keys = {key: context if isinstance(context, Mapping) else {} for key, context in contexts.items()}
    words = {key: str(context.get(_SUBSET, "")).lower() for key, context in keys.items()}
    numbers = [key for key in traces if isinstance(key, int)]
    of_modes = {key: MODE_OF_WORD[word] for key, word in words.items() if word in MODE_OF_WORD and word != "global"}
    # If some sequences have a mode, those without one are of training: in GLOBAL, readers count the steps of all modes.
    other = ModeKeys.TRAIN if any(key in of_modes for key in numbers) else ModeKeys.GLOBAL
    found, taken, system = list[Traced](), set[tuple[ModeKeys, str]](), 0
    for key in sorted(numbers, key=lambda key: (_preference(words.get(key, "")), key)):
        context, mode = dict(keys.get(key, {})), of_modes.get(key, other)
        subset = context.pop(_SUBSET, None) if key in of_modes else None
        for tracked, about in _names(traces[key]):
            if tracked.startswith(_SYSTEM):
                system += 1
                continue
            name = _described(context) + tracked
            if (mode, name) in taken:
                name = f"{subset or 'global'}/{name}"
            taken.add((mode, name))
            # Metrics of the second layout have a step's hash in their paths.
            found.append(Traced(key, tracked, name, mode, about.get("version", 1) != 2))
    return found, system


def _names(names: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, about in names.items() if isinstance(names, Mapping) else ():
        yield str(name), about if isinstance(about, Mapping) else {}


def _preference(word: str) -> int:
    return PREFERENCE.index(word) if word in PREFERENCE else len(PREFERENCE)


def _described(context: Mapping[str, Any]) -> str:
    """Return the prefix that a context gives to names, such as `device=0/`."""
    texts = {key: each if isinstance(each, str) else json.dumps(each, default=str) for key, each in context.items()}
    return "".join(f"{key}={text}/" for key, text in texts.items())


def _column(database: RocksDB, path: tuple[Part, ...], name: str) -> dict[Part, Any]:
    return {rest[0]: value for rest, value in database.below(*path, name) if len(rest) == 1}


def _values(database: RocksDB, path: tuple[Part, ...]) -> Iterator[tuple[Part, Any]]:
    """Yield the values of a sequence by their indices. A distribution is a mapping with its edges and counts."""
    index: Part | None = None
    about = dict[Any, Any]()
    for rest, value in database.below(*path, "val"):
        if len(rest) == 1:
            if index is not None:
                yield index, _distribution(database, (*path, "val", index), about)
            index, about = None, {}
            if isinstance(value, Marker) and value.kind == _DISTRIBUTION:
                index = rest[0]
            else:
                yield rest[0], value
        elif len(rest) > 1 and rest[0] == index:
            about[rest[1:]] = value
    if index is not None:
        yield index, _distribution(database, (*path, "val", index), about)


def _distribution(database: RocksDB, path: tuple[Part, ...], about: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the edges and counts of a histogram; only its type if the histogram is damaged."""
    data = database.large(*path, "data")
    try:
        counts = np.frombuffer(data or b"", np.dtype(about["dtype",]), about["bin_count",])
        edges = np.linspace(about["range", 0], about["range", 1], len(counts) + 1)
    except (KeyError, TypeError, ValueError):
        return {"_type": "histogram"}
    return {"_type": "histogram", "values": counts.tolist(), "bins": edges.tolist()}
