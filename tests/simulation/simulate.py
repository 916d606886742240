"""Simulates histories of runs from seeds: `make simulate SEEDS=10000`, or `make simulate SEED=123` for one again.

`make simulate EXHAUST=1` lets each call of four written histories fail in each way instead.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from simulation.histories import KINDS, LONGER, Outcome, exhaust, run_seed, run_world

_SHOWN_CALLS = 150
_BLOCK = 20


def main() -> int:
    """Run the histories of many seeds, or that of one, and print what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seconds", type=float, help="begin no more seeds after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, help="begin with the seeds of this million, instead of with --first")
    parser.add_argument("--again", type=int, help="run only this seed, and print the calls of its storage")
    parser.add_argument("--exhaust", action="store_true", help="let each call of written histories fail instead")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if arguments.again is not None:
        return _replay(arguments.again)
    if arguments.exhaust:
        return _run_blocks(
            _exhaust, [(story, is_local) for story in range(len(LONGER)) for is_local in (0, 1)], arguments.jobs
        )
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    first = arguments.first if arguments.seed is None else arguments.seed * 1_000_000
    seeds = range(first, first + arguments.seeds)
    blocks = [(seeds[at : at + _BLOCK], end) for at in range(0, len(seeds), _BLOCK)]
    return _run_blocks(_run_block, blocks, arguments.jobs)


def _run_blocks(work: Callable[[Any], tuple[Outcome, list[str]]], blocks: Sequence[Any], jobs: int) -> int:
    whole, failed = Outcome(histories=0), 0
    with ProcessPoolExecutor(jobs) as pool:
        for outcome, errors in pool.map(work, blocks):
            whole += outcome
            failed += len(errors)
            print(*errors, sep="\n", end="\n" if errors else "", flush=True)
    faults = ", ".join(f"{count} {kind}" for kind, count in sorted(whole.failed.items()))
    print(f"{whole.histories} histories, {whole.calls} calls ({faults}), {whole.checks} looks at runs; {failed} failed")
    return int(bool(failed))


def _run_block(block: tuple[range, float | None]) -> tuple[Outcome, list[str]]:
    seeds, end = block
    logging.disable(logging.CRITICAL)
    whole, errors = Outcome(histories=0), []
    for seed in seeds:
        if end is not None and time.monotonic() > end:
            break
        try:
            whole += run_seed(seed)
        except Exception as exc:  # noqa: BLE001 - counted, and printed
            errors.append(f"{type(exc).__name__}: {exc}\n{chr(10).join(exc.__notes__)}")
    return whole, errors


def _exhaust(block: tuple[int, int]) -> tuple[Outcome, list[str]]:
    number, is_local = block
    logging.disable(logging.CRITICAL)
    try:
        return exhaust(LONGER[number], 1, bool(is_local), KINDS), []
    except Exception as exc:  # noqa: BLE001 - counted, and printed
        return Outcome(histories=0), [f"{type(exc).__name__}: {exc}\n{chr(10).join(exc.__notes__)}"]


def _replay(seed: int) -> int:
    world, error = run_world(seed)
    print("\n".join(world.log[-_SHOWN_CALLS:]))
    if error is not None:
        traceback.print_exception(error)
    return int(error is not None)


if __name__ == "__main__":
    sys.exit(main())
