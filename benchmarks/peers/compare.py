"""Two measurements, made before and after a change: which figures became higher or lower.

    python -m peers.compare OLD NEW

Both are files that `python -m peers --json FILE` wrote, or both are files of `make bench ROUNDS=5`. Prints how many
times the old figure the new one is, with a confidence interval. A time is taken relative to others of the same round,
so that a machine that was slower for all makes no difference: in a comparison of peers to the times of the other peers,
and in the others to the times of all programs. The intervals are so wide that two measurements of the same code differ
in no line, nineteen times in twenty. One round has no interval.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np

from .aims import OURS
from .report import Figure, Found, tables, taken

_CONFIDENCE = 0.95
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)( (?:ns|us|ms|s)\b)?")
_SECONDS = {" ns": 1e-9, " us": 1e-6, " ms": 1e-3, " s": 1.0}
_FEWEST_TIMES = 10
"""The number of times that a machine's speed is judged by, at least."""


@dataclass(frozen=True)
class Change:
    """How many times the old figure a new one is, and the bounds of that."""

    what: str
    ratio: float
    least: float
    most: float

    @property
    def verdict(self) -> str:
        if self.least > 1:
            return "higher"
        return "lower" if self.most < 1 else "no difference"

    def __str__(self) -> str:
        return f"| {self.what} | {self.ratio:.2f}x | {self.least:.2f} to {self.most:.2f} | {self.verdict} |"


@dataclass(frozen=True)
class Samples:
    """The logarithms of a figure, one a round, and how far the printed digits may be from each."""

    logs: Sequence[float]
    rounding: float = 0.0


def compare(old: Path, new: Path) -> Iterator[Change]:
    """Compare two files of measurements."""
    texts = old.read_text(), new.read_text()
    if texts[0].startswith('{"program"'):
        return judged(*_samples(*map(_printed, texts)))
    return changes(*(json.loads(text)["rounds"] for text in texts))


def changes(old: Sequence[Found], new: Sequence[Found]) -> Iterator[Change]:
    """Compare all times that two measurements of the peers have."""
    columns = [
        (f"{title}: {column.head}", column.figure)
        for title, columns in tables(new)
        for column in columns
        if column.is_compared
    ]
    return judged(*({what: Samples(_relative(found, figure)) for what, figure in columns} for found in (old, new)))


def judged(old: Mapping[str, Samples], new: Mapping[str, Samples]) -> Iterator[Change]:
    """Compare the figures that are in both. All intervals together hold with the confidence."""
    both = [what for what in new if what in old and min(len(old[what].logs), len(new[what].logs)) > 1]
    for what in both:
        before, after = old[what], new[what]
        found = statistics.fmean(after.logs) - statistics.fmean(before.logs)
        width = _width(before.logs, after.logs, (1 - _CONFIDENCE) / len(both)) + before.rounding + after.rounding
        yield Change(what, *np.exp([found, found - width, found + width]).tolist())


def _width(before: Sequence[float], after: Sequence[float], missed: float) -> float:
    """Return half the width of Student's interval of the difference of two means, which misses it so often."""
    freedom = len(before) + len(after) - 2
    squares = sum((each - statistics.fmean(values)) ** 2 for values in (before, after) for each in values)
    error = np.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
    return float(_quantile(freedom, missed / 2) * error)


@lru_cache
def _quantile(freedom: int, above: float) -> float:
    """Return the number that Student's t exceeds with the probability `above`."""
    angles = np.linspace(0, np.pi / 2, 1_000_001)  # t is the square root of `freedom` times the tangent of one
    exceeded = np.cumsum(np.cos(angles[::-1]) ** (freedom - 1))[::-1]
    angle = angles[np.searchsorted(-exceeded, -2 * above * exceeded[0])]
    return float(np.sqrt(freedom) * np.tan(angle))


def _relative(rounds: Sequence[Found], figure: Figure) -> list[float]:
    """Return our time of each round, divided by the median time of the others that have one, as logarithms."""
    times = []
    for each in rounds:
        found = {name: taken(figure, peer) for name, peer in each["peers"].items()}
        own = found.pop(OURS, None)
        if own is not None and own > 0:  # the steady state of a tiny run may be less than nothing
            others = [value for value in found.values() if value is not None and value > 0]
            times.append(math.log(own / statistics.median(others or [1.0])))
    return times


@dataclass(slots=True)
class _Printed:
    """A figure that programs printed: its logarithm in each round."""

    is_time: bool
    logs: dict[int, float] = field(default_factory=dict)
    rounding: float = 0.0


def _printed(text: str) -> dict[str, _Printed]:
    """Return the figures of a file of `make bench`, by program, line and position in the line."""
    found: dict[str, _Printed] = {}
    processes: defaultdict[str, list[int]] = defaultdict(list)
    lines: Counter[tuple[int, str]] = Counter()
    for each in map(json.loads, text.splitlines()):
        of_program = processes[each["program"]]
        if each["process"] not in of_program:  # a program runs once a round
            of_program.append(each["process"])
        number, line = of_program.index(each["process"]), f"{each['program']}: {each['what'].strip()}"
        lines[number, line] += 1
        for position, match in enumerate(_NUMBER.finditer(each["measured"]), 1):
            digits, unit = match[1].replace(",", ""), match[2]
            if value := float(digits):
                what = f"{line} ({lines[number, line]}), number {position}"
                figure = found.setdefault(what, _Printed(unit is not None))
                figure.logs[number] = math.log(value * _SECONDS.get(unit, 1.0))
                half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
                figure.rounding = max(figure.rounding, math.log1p(half / value))
    return found


def _samples(*files: Mapping[str, _Printed]) -> Iterator[dict[str, Samples]]:
    """Yield the figures of each file, without what made all times of a round longer."""
    times = [what for what, figure in files[0].items() if figure.is_time and what in files[1]]
    usual = {what: statistics.median(files[0][what].logs.values()) for what in times}
    for file in files:
        longer = defaultdict[int, list[float]](list)
        for what in times:
            for number, log in file[what].logs.items():
                longer[number].append(log - usual[what])
        drift = {number: statistics.median(each) for number, each in longer.items() if len(each) >= _FEWEST_TIMES}
        yield {
            what: Samples(
                [log - drift.get(number, 0.0) * figure.is_time for number, log in figure.logs.items()], figure.rounding
            )
            for what, figure in file.items()
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    arguments = parser.parse_args()
    print("| | new over old | confidence interval | |\n|---|---|---|---|")
    for change in compare(arguments.old, arguments.new):
        print(change)


if __name__ == "__main__":
    main()
