"""The flushes that a file of the run holds, and which files supersede others."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_NAME = re.compile(r"(?:.*/)?(\d{8,})(?:-(\d{8,}))?\.parquet", re.DOTALL)


class FlushRange(NamedTuple):
    """The numbers of the first and the last flush that a file holds. Between them numbers may be missing."""

    first: int
    last: int

    def supersedes(self, other: FlushRange) -> bool:
        """Return whether a file with these flushes supersedes one with the `other` flushes."""
        return self.first <= other.first and other.last <= self.last


def flush_range_of(path: str) -> FlushRange | None:
    """Return the flushes of `00000007.parquet` or `00000000-00000063.parquet`; None for a file of any other name."""
    found = _NAME.fullmatch(path)
    if found is None:
        return None
    first = int(found[1])
    return FlushRange(first, int(found[2] or first))


class FirstFlush(NamedTuple):
    """The beginning of a worker's session in the run."""

    number: int = 0
    """The number of its first flush."""
    previous: str = ""
    """The path of the worker's index file before it, empty if there is none."""
    folder: str = ""
    """The last folder of the worker's index: its files have greater names than all before."""


FROM_START = FirstFlush()


def range_path(first: str, last: str) -> str:
    """Return the path of a file that supersedes those from `first` to `last`, in their folder."""
    begin, end = flush_range_of(first), flush_range_of(last)
    assert begin is not None
    assert end is not None
    return f"{folder_of(first)}/{begin.first:08d}-{end.last:08d}.parquet"


def folder_of(path: str) -> str:
    """Return the folder of a path, or an empty string if it has none."""
    return path.rpartition("/")[0]


def current_files(paths: Iterable[str]) -> list[str]:
    """Return the files that no other file of their folder supersedes, by folder and first flush.

    A file whose name is not a number neither supersedes others nor is superseded.
    """
    numbered, others, kept = list[tuple[str, int, int, str]](), list[str](), list[str]()
    for path in paths:
        if flushes := flush_range_of(path):
            numbered.append((folder_of(path), flushes.first, -flushes.last, path))
        else:
            others.append(path)
    wide_folder, wide = "", FlushRange(-1, -1)
    for folder, first, last, path in sorted(numbered):
        flushes = FlushRange(first, -last)
        if folder != wide_folder or not wide.supersedes(flushes):
            wide_folder, wide = folder, flushes
            kept.append(path)
    return sorted([*kept, *others]) if others else kept
