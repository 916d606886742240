"""Runs everything that finds rare failures by chance: `make night HOURS=8`, and for seconds each in the build.

Each finder is a program with a seed and a budget of time. It goes on after a failure, prints for each a line
`again: COMMAND`, which repeats it, and ends with a summary. The report of all of them is printed, and written to
build/night.md; the output of each is in build/night. The exit status is 1 if one has failed.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CASES = "tests/night/cases.py"
PATIENCE_SECONDS = 900
"""After its time, until a finder that goes on is killed. A case or a set-up may take long on a busy machine."""
SHOWN_FAILURES = 20
BUILD_SECONDS = 10.0
"""Of one finder in the build; one that runs alone has twice as long."""


@dataclass(frozen=True)
class Finder:
    """A program that finds rare failures, and what it is run with."""

    command: str
    """Its file and its arguments; it also takes `--seconds` and `--seed`."""
    in_build: str | None = ""
    """Further arguments in the build; None if it is left to the night."""
    is_alone: bool = False
    """True for a program with processes for all cores."""
    share: float = 1.0
    """Its part of the time, relative to the others."""
    least_hours: float = 0.0
    """The shortest night that runs it, in hours."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of its environment."""
    has_end: bool = False
    """True for a program that ends by itself, and takes neither seconds nor a seed."""


FINDERS: Mapping[str, Finder] = {
    "simulate": Finder("tests/simulation/simulate.py --seeds 100000", share=3.0),
    "faults": Finder(f"{CASES} faults", share=2.0),
    "kill": Finder("tests/processes/kill.py --kills 1000000", share=3.0),
    "fuzz": Finder("tests/fuzz/fuzz.py", share=2.0),
    "flips": Finder("tests/fuzz/flips.py --processes 1 --asked 20 --flips 1000000000", share=2.0),
    "every_flip": Finder("tests/fuzz/flips.py --processes 1 --asked 40 --every --flips 1000000000", share=2.0),
    "footers": Finder(f"{CASES} footers"),
    "compared": Finder(f"{CASES} compared"),
    "compactions": Finder(f"{CASES} compactions"),
    "takeovers": Finder(f"{CASES} takeovers"),
    "forks": Finder(f"{CASES} forks"),
    "signals": Finder(f"{CASES} signals"),
    "interrupts": Finder(f"{CASES} interrupts"),
    "written_sql": Finder(f"{CASES} written_sql"),
    "full_disk": Finder(f"{CASES} full_disk"),
    "s3_faults": Finder(f"{CASES} s3_faults"),
    "soak": Finder("tests/processes/soak.py", in_build="--writers 8 --readers 3", is_alone=True),
    "large": Finder(
        "-m pytest -q -p no:cacheprovider tests/processes/test_large_runs.py tests/processes/test_large_values.py",
        in_build=None,
        is_alone=True,
        share=0.0,
        least_hours=1.0,
        variables={"TENSORTRIAL_TEST_WORKER_MB": "200", "TENSORTRIAL_TEST_LARGE": "1"},
        has_end=True,
    ),
}


@dataclass
class Result:
    """The result of one finder with one seed."""

    name: str
    command: str
    """The command that was run."""
    status: int | None
    """The exit status; None if the process was killed because it did not end."""
    seconds: float
    output: str

    @property
    def again(self) -> list[str]:
        """The commands that repeat the failures."""
        lines = [line.strip().removeprefix("again: ") for line in self.output.splitlines() if "again: " in line]
        return lines or ([] if self.status == 0 else [self.command])

    @property
    def summary(self) -> str:
        """The lines that the program printed after the last failure."""
        if self.status is None:
            return "did not end"
        lines = self.output.splitlines()
        after = max((number for number, line in enumerate(lines, 1) if "again: " in line), default=0)
        said = [line.strip() for line in lines[after:] if line.strip()]
        return "; ".join(said if self.status == 0 or after else said[-1:]) or "no output"


def run_finder(
    name: str, finder: Finder, seconds: float, seed: int, extra: str = "", folder: Path = ROOT / "build" / "night"
) -> Result:
    """Run a finder, whose output is written into `folder`, and return what it has found."""
    arguments = [*shlex.split(finder.command), *shlex.split(extra)]
    if not finder.has_end:
        arguments += ["--seconds", f"{seconds:.0f}", "--seed", str(seed)]
    shown = shlex.join([os.path.relpath(sys.executable, ROOT), *arguments])
    folder.mkdir(parents=True, exist_ok=True)
    output, begun = folder / f"{name}-{seed}.txt", time.monotonic()
    with output.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **finder.variables},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = process.wait(seconds + PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            end_session(process)
    return Result(name, shown, status, time.monotonic() - begun, output.read_text(errors="replace"))


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program and the processes that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def run_all(jobs: Sequence[tuple[bool, Callable[[], Result]]], at_once: int) -> list[Result]:
    """Run jobs, some at once, and after them those that run alone. Print a line for each that has ended."""

    def run(job: Callable[[], Result]) -> Result:
        result = job()
        print(line_of(result), flush=True)
        return result

    results: list[Result] = []
    for is_alone in (False, True):
        with ThreadPoolExecutor(1 if is_alone else at_once) as pool:
            results += pool.map(run, [job for alone, job in jobs if alone == is_alone])
    return results


def line_of(result: Result) -> str:
    verdict = "passed" if result.status == 0 else "FAILED"
    return f"{verdict} {result.name} in {result.seconds:.0f} s: {result.summary}\n    {result.command}"


def report(results: Sequence[Result], title: str) -> str:
    """Return the report of all finders, as Markdown."""
    rows = [
        f"| {each.name} | {each.seconds:.0f} s | {len(each.again) or 'none'} | {each.summary} |" for each in results
    ]
    lines = [f"# {title}", "", "| finder | time | failures | result |", "|---|---|---|---|", *rows]
    for each in results:
        if each.again:
            shown = [f"- `{command}`" for command in each.again[:SHOWN_FAILURES]]
            left = len(each.again) - len(shown)
            lines += ["", f"## {each.name} failed", "", *shown, *([f"- and {left} more"] if left else [])]
    lines += ["", "## Commands", "", *(f"- `{each.command}`" for each in results)]
    return "\n".join(lines) + "\n"


def seed_of_commit() -> int:
    """Return a seed that differs with each commit; 1 where there is no git."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return 1
    return int(done.stdout.strip()[:6], 16)


def build(at_once: int) -> list[Result]:
    """Run each finder for some seconds, with the seed of the commit."""
    seed = seed_of_commit()
    print(f"the seed of this commit: {seed}", flush=True)
    jobs = []
    for name, finder in FINDERS.items():
        if finder.in_build is not None:
            seconds = BUILD_SECONDS * (2 if finder.is_alone else 1)
            arguments = name, finder, seconds, seed, finder.in_build
            jobs.append((finder.is_alone, lambda arguments=arguments: run_finder(*arguments)))
    return run_all(jobs, at_once)


def night(hours: float, at_once: int, seed: int, only: Sequence[str]) -> list[Result]:
    """Run each finder for its share of some hours."""
    print(f"{hours:g} hours, seed {seed}", flush=True)
    finders = {
        name: finder for name, finder in FINDERS.items() if (name in only if only else finder.least_hours <= hours)
    }
    # A program that runs alone takes the time of all cores.
    shares = sum(finder.share * (at_once if finder.is_alone else 1) for finder in finders.values())
    jobs = []
    for name, finder in finders.items():
        # A short night runs as few processes as the build.
        extra = finder.in_build or "" if hours < 1 else ""
        arguments = name, finder, hours * 3600 * at_once * finder.share / (shares or 1), seed, extra
        jobs.append((finder.is_alone, lambda arguments=arguments: run_finder(*arguments)))
    return run_all(jobs, at_once)


def main() -> int:
    """Run what the command line says. Return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=8.0, help="of all finders together")
    parser.add_argument("--seed", type=int, default=int(date.today().strftime("%Y%m%d")), help="default: the date")
    parser.add_argument("--only", nargs="*", default=[], choices=list(FINDERS), help="these finders")
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument("--build", action="store_true", help="run each for some seconds, as the build does")
    given = parser.parse_args()
    if not (0 < given.hours < math.inf and given.jobs > 0):
        parser.error(f"--hours and --jobs must be more than 0, got {given.hours:g} and {given.jobs}")
    begun = time.monotonic()
    results = build(given.jobs) if given.build else night(given.hours, given.jobs, given.seed, given.only)
    hours = (time.monotonic() - begun) / 3600
    failed = sum(bool(each.again) for each in results)
    text = report(results, f"{len(results)} runs of finders in {hours:.2f} hours, {failed} with failures")
    (ROOT / "build" / "night.md").write_text(text)
    print(text)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
