"""Kills writers by SIGKILL at random points, and reads what they left: `make kill KILLS=1000 SEED=1`.

Each run is written by ordinary training processes, of one worker or three, some of them next to a process that compacts
the run. They are killed after a random time, several times in a row where the scenario says so. A reader in a process
of its own notes every step that is available to it meanwhile. After each kill the run is opened again:

- every step that was available reads as it did, and every other one holds what the training computed, to the bit;
- everything that `hook.flush()` has published is there;
- the run resumes, and what it saves then is read, too.

A failure names the run, which `make kill SEED=1 RUN=17` writes again, at other points.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

# OpenBLAS starts its threads when it is imported.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from audit import Audit, Auditor, Digests, broken_promises, differences, follow  # noqa: E402
from digits_job import JobOptions, train  # noqa: E402

from support.training import digits  # noqa: E402
from tensortrial.errors import MissingCollectionFiles, RunNotFound  # noqa: E402
from tensortrial.maintenance.compaction import compact  # noqa: E402

LONGEST_SECONDS = 0.6
"""Until a kill, at most."""
RESUMED_STEPS = 10
PATIENCE_SECONDS = 120
"""For a process to end that was asked to. It takes well below a second; a machine may be busy."""

# Processes are forked from this one, which has imported PyTorch and never starts a thread: it neither trains nor reads.
_context = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Scenario:
    name: str
    workers: int = 1
    compacts: bool = False
    kills: int = 1
    """Sessions of one run that are killed, each but the first a resumed one."""


SCENARIOS = [
    Scenario("one worker"),
    Scenario("three workers", workers=3),
    Scenario("compaction", compacts=True),
    Scenario("three workers and compaction", workers=3, compacts=True),
    Scenario("resume", kills=5),
    Scenario("three workers resume", workers=3, compacts=True, kills=3),
]


@dataclass
class Totals:
    kills: int = 0
    unborn: int = 0
    """Kills before the run had begun."""
    resumed: int = 0
    reported: int = 0
    """Steps that were reported as available to a reader."""
    read: int = 0
    """Values that were read and compared after a kill."""
    problems: list[str] = field(default_factory=list)


class Child:
    """A process and what it sends."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self.received, sent = _context.Pipe()
        self.process: BaseProcess = _context.Process(target=_run, args=(target, sent, *arguments), daemon=True)
        self.process.start()
        sent.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.received.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def messages(self) -> list[Any]:
        """Return all that it has sent so far, or until its end."""
        found = []
        try:
            while self.received.poll():
                found.append(self.received.recv())
        except (EOFError, ConnectionResetError):
            pass
        return found

    def last_message(self) -> Any:
        """Ask it to end, and return what it sends then: a text if something went wrong."""
        with suppress(BrokenPipeError):  # it has ended by itself
            self.received.send("end")
        try:
            return self.received.recv() if self.received.poll(PATIENCE_SECONDS) else "did not end when asked to"
        except EOFError:
            return "ended, and said nothing"


def _run(target: Callable[..., None], sent: Connection, *arguments: Any) -> None:
    try:
        target(sent, *arguments)
    except Exception:  # noqa: BLE001 - the process ends, and another one reports it
        sent.send(traceback.format_exc())
        sys.exit(1)


def write(sent: Connection, options: JobOptions) -> None:
    """Train in a process of its own."""
    os.environ["TENSORTRIAL_STRICT"] = "1"
    train(options, sent.send)


def read(sent: Connection, url: str) -> None:
    """Follow the run in a process of its own until asked to end, and send what was available."""
    sent.send(follow(url, sent.poll).audit)


def read_again(sent: Connection, url: str) -> None:
    """Open the run in a process of its own, and send what is in it: None if it never began."""
    auditor = Auditor(url)
    if auditor.open():
        auditor.read_all()
        sent.send(auditor.audit)
    else:
        sent.send(None)


def compact_often(sent: Connection, url: str, delete_older_than: float) -> None:
    """Compact the run again and again, in a process of its own."""
    while not sent.poll():
        try:
            done = compact(url, delete_older_than=delete_older_than)
        except (RunNotFound, MissingCollectionFiles):
            continue
        if done.damaged:
            sent.send(f"compaction found damaged files: {done.damaged}")
        time.sleep(0.01)


class Run:
    """A run that is killed, read and resumed."""

    def __init__(self, folder: Path, scenario: Scenario, rng: Random, totals: Totals) -> None:
        self._url = str(folder / "run")
        self._scenario, self._rng, self._totals = scenario, rng, totals
        self._reported: Digests = {}
        self._promised: dict[tuple[int, int], int] = {}
        self.problems: list[str] = []
        codec, flush_seconds = rng.choice(["none", "none", "zstd"]), rng.choice([0.0, 0.02, 0.2])
        hook = {"codec": codec, "flush_seconds": flush_seconds}
        self._options = JobOptions(self._url, num_workers=scenario.workers, hook=hook)

    def go(self) -> list[str]:
        """Kill it as often as the scenario says, resume it, and return what is wrong."""
        for session in range(self._scenario.kills):
            self._session(session, self._kill)
            self._totals.kills += 1
        self._session(self._scenario.kills, self._let_end)
        self._totals.resumed += 1
        return self.problems

    def _session(self, session: int, end: Callable[[list[Child]], None]) -> None:
        steps = RESUMED_STEPS if session == self._scenario.kills else JobOptions.steps
        # One that resumes what was killed before it began, begins.
        options = replace(self._options, session=session, resume=session > 0, steps=steps)
        with ExitStack() as stack:
            reader = stack.enter_context(Child(read, self._url))
            ranks = range(self._scenario.workers)
            workers = [stack.enter_context(Child(write, replace(options, rank=rank))) for rank in ranks]
            others: list[Child] = []
            if self._scenario.compacts:
                others = [stack.enter_context(Child(compact_often, self._url, self._rng.choice([0.0, 0.05])))]
            end([*workers, *others])
            for rank, worker in enumerate(workers):
                for message in worker.messages():
                    self._take(f"worker_{rank} in session {session}", message, (session, rank))
            for other in others:
                self.problems += other.messages()
            reported = reader.last_message()
        self._read_again(reported)

    def _take(self, who: str, message: Any, key: tuple[int, int]) -> None:
        if isinstance(message, int):
            self._promised[key] = message
        else:
            self.problems.append(f"{who}: {message}")

    def _kill(self, children: list[Child]) -> None:
        time.sleep(self._rng.uniform(0, LONGEST_SECONDS))
        for child in self._rng.sample(children, len(children)):
            child.kill()
            if self._rng.random() < 0.5:
                time.sleep(self._rng.uniform(0, 0.05))

    def _let_end(self, children: list[Child]) -> None:
        for child in children[: self._scenario.workers]:
            child.process.join(PATIENCE_SECONDS)
            if child.process.exitcode != 0:
                self.problems.append(f"a resumed worker ended with {child.process.exitcode}")
        for child in children:
            child.kill()

    def _read_again(self, reported: Audit | str) -> None:
        """Compare what is in the run now with what a reader has reported, and what the writers have published."""
        with Child(read_again, self._url) as child:
            audit = child.last_message()
        for said in (reported, audit):
            if isinstance(said, str):
                self.problems.append(f"a reader: {said}")
                return
        self._note(reported)
        if audit is None:
            self._totals.unborn += 1
            audit = Audit()
        self.problems += audit.problems + differences(self._reported, audit) + broken_promises(self._promised, audit)
        self._totals.read += audit.rows

    def _note(self, reported: Audit) -> None:
        self.problems += [f"while it was written: {problem}" for problem in reported.problems]
        self._totals.reported += len(reported.digests.keys() - self._reported.keys())
        for step, digest in reported.digests.items():
            if self._reported.setdefault(step, digest) != digest:
                self.problems.append(f"step {step} changed for a reader after an earlier one had read it")


def one_run(seed: int, number: int, totals: Totals) -> None:
    scenario = SCENARIOS[number % len(SCENARIOS)]
    folder = Path(tempfile.mkdtemp(prefix="tensortrial-kill-"))
    problems = Run(folder, scenario, Random(f"{seed}/{number}"), totals).go()
    if not problems:
        shutil.rmtree(folder)
        return
    text = f"run {number} of seed {seed} ({scenario.name}), left in {folder}:\n  " + "\n  ".join(problems[:10])
    text += f"\nagain: make kill SEED={seed} RUN={number}"
    totals.problems.append(text)
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=1, help="which random times and scenarios")
    parser.add_argument("--run", type=int, help="write this one run again")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for how long runs are begun")
    arguments = parser.parse_args()
    digits()  # read once for all processes
    totals, begun = Totals(), time.monotonic()
    number = arguments.run or 0
    while totals.kills < arguments.kills and time.monotonic() - begun < arguments.seconds:
        one_run(arguments.seed, number, totals)
        number += 1
        if arguments.run is not None:
            break
    print(
        f"{totals.kills} kills in {time.monotonic() - begun:.0f} s, {totals.unborn} of them before the run had begun; "
        f"{totals.resumed} runs resumed; {totals.reported} steps were available to a reader, "
        f"{totals.read} values read after kills; {len(totals.problems)} runs with problems"
    )
    return 1 if totals.problems else 0


if __name__ == "__main__":
    sys.exit(main())
