"""Faults at random calls of the written histories of the simulation: nothing that was published is lost or wrong."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from night.finder import Case

from simulation.faults import FaultAt, NoFaults, faults_at
from simulation.histories import LONGER, overtaken, run, shortest
from simulation.model import Wrong

FAULTS = 3
"""Of one case."""


@contextmanager
def prepared(folder: Path) -> Iterator[Case]:
    del folder
    os.environ.pop("TENSORTRIAL_STRICT", None)  # a hook that fails is turned off here
    logging.disable(logging.CRITICAL)
    yield _case


def _case(random: Random, own: Path) -> Counter[str]:
    """Run a history undisturbed, and then with one fault at one of its calls, some times."""
    del own
    story, is_local, seed = random.choice((shortest, *LONGER)), random.random() < 0.5, random.randrange(1 << 30)
    _, outcome, error = run(seed, is_local, NoFaults(), story)
    if error is not None:
        raise error
    counted = Counter(histories=1)
    for _ in range(FAULTS):
        number = random.randrange(outcome.calls)
        fault = random.choice(faults_at(number, is_local))
        _, _, error = run(seed, is_local, FaultAt(number, fault), story)
        counted += Counter({"histories": 1, f"faults ({fault.kind})": 1})
        if isinstance(error, Wrong) and story is overtaken:
            # A request that takes longer than the lease may publish after the takeover; docs/reliability.md says so.
            counted["steps that came after the lease"] += 1
        elif error is not None:
            place = f"call {number} of {story.__name__!r}, seed {seed}, {'disk' if is_local else 'bucket'}"
            error.add_note(f"after the fault {fault} at {place}")
            raise error
    return counted
