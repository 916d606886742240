"""Two measurements of the peers, made before and after a change: what became faster or slower.

    python -m peers.compare OLD.json NEW.json

Prints how many times the old time the new one is, with a confidence interval. A time is taken relative to those of the
other peers in the same round, so that a machine that was slower for all makes no difference. The intervals are wide
enough that two measurements of the same code differ in no line, nineteen times in twenty.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .aims import OURS
from .report import Figure, Found, tables, taken

_RESAMPLED = 20_000
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Change:
    """How many times the old time a new one is, and the bounds of that."""

    what: str
    ratio: float
    least: float
    most: float

    @property
    def verdict(self) -> str:
        if self.least > 1:
            return "slower"
        return "faster" if self.most < 1 else "no difference"

    def __str__(self) -> str:
        return f"| {self.what} | {self.ratio:.2f}x | {self.least:.2f} to {self.most:.2f} | {self.verdict} |"


def changes(old: Sequence[Found], new: Sequence[Found]) -> Iterator[Change]:
    """Compare all times that both measurements have."""
    columns = [(title, column) for title, columns in tables(new) for column in columns if column.is_compared]
    measured = [
        (f"{title}: {column.head}", _relative(old, column.figure), _relative(new, column.figure))
        for title, column in columns
    ]
    both = [(what, before, after) for what, before, after in measured if before and after]
    for what, before, after in both:
        least, most = _interval(before, after, (1 - _CONFIDENCE) / len(both))
        yield Change(what, statistics.median(after) / statistics.median(before), least, most)


def _relative(rounds: Sequence[Found], figure: Figure) -> list[float]:
    """Return our time of each round, divided by the median time of the others that have one."""
    times = []
    for each in rounds:
        found = {name: taken(figure, peer) for name, peer in each["peers"].items()}
        own = found.pop(OURS, None)
        if own is not None:
            times.append(own / statistics.median([value for value in found.values() if value] or [1.0]))
    return times


def _interval(before: list[float], after: list[float], missed: float) -> tuple[float, float]:
    """Return the bootstrap interval of the ratio of the medians, which misses it with the probability `missed`."""
    random = np.random.default_rng(0)
    olds, news = (np.median(random.choice(values, (_RESAMPLED, len(values))), axis=1) for values in (before, after))
    least, most = np.quantile(news / olds, [missed / 2, 1 - missed / 2])
    return float(least), float(most)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    arguments = parser.parse_args()
    old, new = (json.loads(path.read_text())["rounds"] for path in (arguments.old, arguments.new))
    print("| | new over old | confidence interval | |\n|---|---|---|---|")
    for change in changes(old, new):
        print(change)


if __name__ == "__main__":
    main()
