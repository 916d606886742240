"""Runs random cases of one finder: `python tests/night/cases.py forks --seconds 20 --seed 1`.

`--case 12` runs one case again.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from night.finder import CannotRun, Prepared, run_cases


def main() -> int:
    """Run the cases that the command line names. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("finder", help="a module of this folder")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long cases are begun")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the cases")
    parser.add_argument("--case", type=int, help="run only the case of this number")
    given = parser.parse_args()
    # A program in the background of a shell ignores Ctrl-C, and so would the processes that cases start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("TENSORTRIAL_ENVIRONMENT", "0")  # each hook would start git
    prepared: Prepared = import_module(f"night.{given.finder}").prepared
    numbers = itertools.count() if given.case is None else [given.case]
    try:
        totals = run_cases(given.finder, prepared, numbers, given.seconds, given.seed)
    except CannotRun as exc:
        print(f"not run: {exc}")
        return 0
    print(totals)
    return int(bool(totals.failures))


if __name__ == "__main__":
    sys.exit(main())
