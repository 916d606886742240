"""Flipped bits are named or change no answer: a few here, many more by `make flips`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from flips import Selection, run_flips


def test_flipped_bits_of_small_runs_are_named_or_change_nothing() -> None:
    totals = run_flips(Selection(10, every=True, step=39_989))
    assert totals.flips.total() > 5
    assert totals.failures == []
