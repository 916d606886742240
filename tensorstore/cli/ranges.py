"""A short text for many steps."""

from __future__ import annotations

from collections.abc import Sequence


def ranges(numbers: Sequence[int]) -> list[str]:
    """Return ascending numbers as ranges with equal distances: `0-90:10` for 0, 10, … 90."""
    found: list[str] = []
    start = 0
    while start < len(numbers):
        end = start + 1
        width = numbers[end] - numbers[start] if end < len(numbers) else 1
        while end + 1 < len(numbers) and numbers[end + 1] - numbers[end] == width:
            end += 1
        if end - start < 2:
            found.append(str(numbers[start]))
            start += 1
        else:
            found.append(f"{numbers[start]}-{numbers[end]}" + (f":{width}" if width > 1 else ""))
            start = end + 1
    return found
