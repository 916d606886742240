"""The collections that a tensor belongs to, found without trying every pattern of every collection."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from tensortrial.config.changes import Changes
from tensortrial.config.collection import Collection

# A pattern is tried only on names with a piece of text that all of its matches contain. The length of a piece:
_PIECE = 6
# Up to this number, the collections with tensor names are searched one after another, without an index by name.
_FEW = 64


class Matcher:
    """A matcher of names against the current state of the collections.

    Inside, a collection is identified by its index in the list of collections.
    """

    def __init__(self, collections: Iterable[Collection]) -> None:
        self._all = collections
        self._collections: list[Collection] = []
        self._patterns_at = self._names_at = -1
        self._by_piece: dict[str, list[_Pattern]] = {}
        self._others: list[_Pattern] = []
        self._lengths: list[int] = []
        self._own: list[int] = []
        """The collections whose classes override `matches`."""
        self._named: list[int] = []
        self._by_name: dict[str, list[int]] | None = None

    def refresh(self) -> None:
        """Refresh the indexes, if collections were changed since the last name."""
        if self._patterns_at != Changes.patterns:
            self._patterns_at = Changes.patterns
            self._collections = list(self._all)
            self._own = [
                index for index, of in enumerate(self._collections) if type(of).matches is not Collection.matches
            ]
            patterns = [(index, each) for index, of in enumerate(self._collections) for each in of.patterns]
            self._by_piece, self._others = _by_rarest_piece(patterns)
            self._lengths = sorted({len(piece) for piece in self._by_piece})
        if self._names_at != Changes.names:
            self._names_at = Changes.names
            self._named = [index for index, of in enumerate(self._collections) if of.tensor_names]
            self._by_name = self._inverted() if len(self._named) > _FEW else None

    def _inverted(self) -> dict[str, list[int]]:
        found = defaultdict[str, list[int]](list)
        for index in self._named:
            for name in self._collections[index].tensor_names:
                found[name].append(index)
        return dict(found)

    def matching(self, name: str) -> list[Collection]:
        """Return the collections that match a name, in their order."""
        self.refresh()
        if self._by_name is not None:
            found = set(self._by_name.get(name, ()))
        else:
            found = {index for index in self._named if name in self._collections[index].tensor_names}
        for index, pattern in [*self._others, *self._candidates(name)]:
            if index not in found and pattern.search(name):
                found.add(index)
        if self._own:
            found.difference_update(self._own)
            found.update(index for index in self._own if self._collections[index].matches(name))
        return [self._collections[index] for index in sorted(found)]

    def _candidates(self, name: str) -> Iterator[_Pattern]:
        for length in self._lengths:
            for piece in {name[start : start + length] for start in range(len(name) - length + 1)}:
                yield from self._by_piece.get(piece, ())


_Pattern = tuple[int, re.Pattern[str]]


def _by_rarest_piece(patterns: Sequence[_Pattern]) -> tuple[dict[str, list[_Pattern]], list[_Pattern]]:
    """Return the patterns by their rarest piece, which the fewest other patterns have, and patterns without a piece."""
    pieces = [_pieces(pattern) for _, pattern in patterns]
    shared = Counter(piece for each in pieces for piece in each)
    by_piece = defaultdict[str, list[_Pattern]](list)
    for pattern, each in zip(patterns, pieces, strict=True):
        by_piece[min(each, key=lambda piece: (shared[piece], piece), default="")].append(pattern)
    others = by_piece.pop("", [])
    return by_piece, others


@lru_cache(maxsize=1 << 16)
def _pieces(pattern: re.Pattern[str]) -> frozenset[str]:
    """Return the pieces of the longest text that every match of the pattern contains; none if there is no such text."""
    if pattern.flags & (re.IGNORECASE | re.LOCALE | re.VERBOSE):
        return frozenset()
    text = max(_texts(_parser.parse(pattern.pattern)), key=len, default="")
    length = min(len(text), _PIECE)
    return frozenset(text[start : start + length] for start in range(len(text) - length + 1)) if text else frozenset()


def _texts(parsed: Any) -> Iterator[str]:
    """Yield the texts that every match of a pattern contains, outside of groups and repetitions."""
    text = ""
    for operation, argument in parsed:
        if operation is _constants.LITERAL:
            text += chr(argument)
        elif operation is not _constants.AT:  # an anchor matches no text
            yield text
            text = ""
    yield text
