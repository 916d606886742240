"""Runs that a release and today's code write, resume, compact and read in a random order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

from night.finder import Case
from releases.histories import WHEELS, opened, random_history


@contextmanager
def prepared(folder: Path) -> Iterator[Case]:
    with ExitStack() as stack:
        pairs = [stack.enter_context(opened(wheel, folder / wheel.stem)) for wheel in WHEELS]

        def case(random: Random, own: Path) -> Counter[str]:
            return Counter(steps=random_history(random.choice(pairs), own / "run", random))

        yield case
