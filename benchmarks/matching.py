"""The time that a new name of a tensor costs the training thread, with few and with many collections.

    python benchmarks/matching.py [NAMES] [COLLECTIONS]

The first step of a large model names all its tensors; later steps know their plans.
"""

from __future__ import annotations

import sys
import time

from tensortrial.config.collection import Collection
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig
from tensortrial.format.record import Step
from tensortrial.hooks.core.configuration.collections import CollectionManager
from tensortrial.hooks.core.configuration.planner import Planner
from tensortrial.mode import ModeKeys


def planner_of(count: int) -> tuple[Planner, CollectionManager]:
    """Return a planner with this many collections, each of one layer."""
    manager = CollectionManager(["losses"], SaveConfig(save_interval=1))
    for number in range(count):
        manager.add(Collection(f"layer{number}", f"^layer_{number}/"))
        manager.include([f"layer{number}"])
    planner = Planner(manager, ReductionConfig(), False, lambda name, error: None)
    planner.refresh()
    planner.select(Step(ModeKeys.GLOBAL, 0, 0))
    return planner, manager


def main() -> None:
    """Print the time a name for few and for many collections, and their ratio."""
    names, collections = (
        int(sys.argv[position]) if len(sys.argv) > position else of for position, of in ((1, 100_000), (2, 5000))
    )
    spent = {}
    for count in (5, collections):
        planner, manager = planner_of(count)
        began = time.process_time()
        planned = sum(planner.plan(f"layer_{number % count}/weight_{number}") is not None for number in range(names))
        spent[count] = (time.process_time() - began) / names
        assert planned == names
        print(
            f"{count:6,} collections: {spent[count] * 1e6:8.1f} us a name, {spent[count] * names:6.1f} s for {names:,}"
        )
        few = range(min(names, 200))
        began = time.process_time()
        for number in few:
            [each for each in manager if each.matches(f"layer_{number % count}/weight_{number}")]
        tried = (time.process_time() - began) / len(few)
        print(f"        each pattern tried: {tried * 1e6:8.1f} us a name, {tried / spent[count]:.0f} times as long")
    print(f"{spent[collections] / spent[5]:.1f} times as long with {collections / 5:,.0f} times as many collections")


if __name__ == "__main__":
    main()
