"""Simulated histories: nothing that was published is lost or wrong, whatever fails and whenever."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest

from simulation.faults import RandomFaults
from simulation.histories import KINDS, LONGER, Outcome, Story, exhaust, long, run, run_seed, shortest

pytestmark = pytest.mark.slow

_SEEDS = 12
_BLOCK = 6
# Of the calls and faults of a written history. The finder `faults` takes others, `make simulate EXHAUST=1` takes all.
_EVERY = {"shortest": 5, "short": 131, "unflushed": 31, "overtaken": 211, "compacted": 111}


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TENSORTRIAL_STRICT", raising=False)  # a hook that fails is turned off here
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("first", range(0, _SEEDS, _BLOCK))
def test_histories_of_some_seeds_lose_nothing(first: int) -> None:
    whole = sum((run_seed(seed) for seed in range(first, first + _BLOCK)), Outcome(histories=0))
    assert whole.checks > 2 * _BLOCK
    assert whole.published > 5 * _BLOCK
    assert whole.failed


_PLACES = pytest.mark.parametrize("is_local", [True, False], ids=["disk", "bucket"])


@_PLACES
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_calls_of_a_short_history_loses_nothing(is_local: bool, kind: str) -> None:
    outcome = exhaust(shortest, 1, is_local, [kind], _EVERY["shortest"])
    assert outcome.published >= outcome.histories
    struck = (is_local or kind != "cut") and kind != "old"
    assert outcome.failed[kind] >= 2 * struck


@pytest.mark.slow
@_PLACES
@pytest.mark.parametrize("story", LONGER, ids=lambda story: story.__name__)
def test_any_fault_at_calls_of_a_longer_history_loses_nothing(is_local: bool, story: Story) -> None:
    # A flush whose request takes longer than the lease says that the run was taken over. So its step does not count
    # as published, and the next session, which passes over the number of the flush, may save the step again.
    outcome = exhaust(story, 1, is_local, KINDS, _EVERY[story.__name__])
    assert outcome.failed.total() >= 2


def test_a_seed_replays_the_same_history() -> None:
    first, second = (run(5, is_local=True, plan=RandomFaults(Random(5), is_local=True), story=long)[0] for _ in "ab")
    assert first.log == second.log
    assert {path: inode.data for path, inode in first.disk.files.items()} == {
        path: inode.data for path, inode in second.disk.files.items()
    }
