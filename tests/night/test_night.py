"""The night finds, repeats and reports failures."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from night.finder import Case, run_cases
from night.runner import FINDERS, ROOT, Finder, Result, report, run_all, run_finder, seed_of_commit

FAILING = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--seconds")
parser.add_argument("--seed")
given = parser.parse_args()
print("case 3: wrong")
print("again: make finder SEED=" + given.seed + " CASE=3")
print("9 cases in " + given.seconds + " s; 1 failed")
raise SystemExit(1)
"""


@contextmanager
def one_in_four(folder: Path) -> Iterator[Case]:
    """A finder that finds a defect in about one case of four."""

    def case(random: Random, own: Path) -> Counter[str]:
        assert folder.is_dir()
        assert list(own.iterdir()) == []
        number = random.randrange(1000)
        assert number >= 250, f"drew {number}"
        return Counter(numbers=1)

    yield case


def test_a_failing_case_is_printed_with_its_command_and_fails_again(capsys: pytest.CaptureFixture[str]) -> None:
    totals = run_cases("drawing", one_in_four, range(20), 60.0, seed=7)
    assert totals.cases == 20
    assert 0 < len(totals.failures) < 20
    assert totals.counted == Counter(numbers=20 - len(totals.failures))
    printed = capsys.readouterr().out
    assert printed.count("again: make night ONLY=drawing SEED=7 CASE=") == len(totals.failures)
    number = int(totals.failures[0].rpartition("CASE=")[2])
    again = run_cases("drawing", one_in_four, [number], 60.0, seed=7)
    assert again.failures == totals.failures[:1]


def test_cases_begin_until_the_time_is_over() -> None:
    assert run_cases("drawing", one_in_four, itertools.count(), 0.0, seed=7).cases == 1


def finder(folder: Path, program: str) -> Finder:
    (folder / "finder.py").write_text(program)
    return Finder(str(folder / "finder.py"))


def jobs_of(*results: Result) -> list[tuple[bool, Callable[[], Result]]]:
    return [(False, lambda result=result: result) for result in results]


def test_the_report_names_the_failures_and_their_commands(tmp_path: Path) -> None:
    failed = run_finder("failing", finder(tmp_path, FAILING), 5, 11, folder=tmp_path)
    passed = run_finder("passing", finder(tmp_path, "print('8 cases; 0 failed')"), 5, 11, folder=tmp_path)
    assert (failed.status, failed.summary) == (1, "9 cases in 5 s; 1 failed")
    assert (passed.status, passed.summary, passed.again) == (0, "8 cases; 0 failed", [])
    text = report(run_all(jobs_of(failed, passed), at_once=2), "Two finders")
    assert f"| failing | {failed.seconds:.0f} s | 1 | 9 cases in 5 s; 1 failed |" in text
    assert f"| passing | {passed.seconds:.0f} s | none | 8 cases; 0 failed |" in text
    assert "## failing failed\n\n- `make finder SEED=11 CASE=3`\n" in text
    assert "## passing" not in text


def test_a_finder_that_ends_with_an_error_has_failed_and_is_repeated_as_a_whole(tmp_path: Path) -> None:
    result = run_finder("broken", finder(tmp_path, "raise KeyError('x')"), 5, 11, folder=tmp_path)
    assert result.summary == "KeyError: 'x'"
    (command,) = result.again
    assert command.endswith("finder.py --seconds 5 --seed 11")


def test_a_finder_that_does_not_end_is_killed_with_its_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("night.runner.PATIENCE_SECONDS", 1.0)
    program = "import subprocess\nprint('waits', flush=True)\nsubprocess.run(['sleep', '600'])"
    result = run_finder("endless", finder(tmp_path, program), 0, 11, folder=tmp_path)
    assert (result.status, result.summary) == (None, "did not end")
    assert len(result.again) == 1


def test_the_night_runs_every_finder_of_its_folder() -> None:
    texts = {path.stem: path.read_text() for path in Path(__file__).parent.glob("*.py")}
    modules = [name for name, text in texts.items() if re.search("^(def )?prepared[( ]", text, re.M)]
    run = [each.command.split()[-1] for each in FINDERS.values()]
    assert set(modules) - {Path(__file__).stem} <= set(run)


def test_the_seed_of_the_build_is_that_of_the_commit() -> None:
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        assert seed_of_commit() == 1
    else:
        assert done.stdout.startswith(f"{seed_of_commit():06x}")


@pytest.mark.parametrize("arguments", [["--hours", "-1"], ["--hours", "nan"], ["--jobs", "0"]])
def test_a_night_in_which_nothing_would_run_is_refused(arguments: list[str]) -> None:
    line = [sys.executable, str(ROOT / "tests" / "night" / "runner.py"), *arguments]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "must be more than 0, got" in done.stderr
