"""Single bits that are flipped in one of two equal runs, each of which a comparison must name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from night.finder import Case

import tensortrial
from support.flipped_runs import check, flips, write


@contextmanager
def prepared(folder: Path) -> Iterator[Case]:
    with tensortrial.create_trial(write(folder / "equal")) as equal:

        def case(random: Random, own: Path) -> Counter[str]:
            (flip,) = flips(1, random.randrange(1 << 30))
            check(flip, equal, own / "run")
            return Counter(bits=1)

        yield case
