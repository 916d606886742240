"""The sets of tensors that steps hold. Most steps hold the same, so each set is kept once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ..format.index_types import NamedTensor


class NameSets:
    """Sets of tensors, numbered in the order in which they were found.

    It only grows: the steps of a run before and after a refresh share one, and each knows how many sets it has.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[NamedTensor, ...], int] = {}
        self._tensors: list[tuple[NamedTensor, ...]] = []
        self._of_name: dict[str, list[int]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._tensors)

    def __getitem__(self, number: int) -> tuple[NamedTensor, ...]:
        """The tensors of a set, by name."""
        return self._tensors[number]

    def find(self, tensors: tuple[NamedTensor, ...]) -> int | None:
        """Return the number of a set; None if it has none yet."""
        return self._numbers.get(tensors)

    def number(self, tensors: tuple[NamedTensor, ...]) -> int:
        """Return the number of a set, which is added if it is new."""
        number = self._numbers.get(tensors)
        if number is None:
            number = self._numbers[tensors] = len(self._tensors)
            self._tensors.append(tuple(sorted(tensors)))
            for name in dict.fromkeys(name for name, _ in tensors):
                self._of_name[name].append(number)
        return number

    def holding(self, name: str) -> Iterator[int]:
        """Yield the numbers of the sets that hold a tensor, ascending."""
        yield from self._of_name.get(name, ())
