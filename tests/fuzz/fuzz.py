"""Damages runs and uses everything that reads them: `make fuzz SECONDS=60 SEED=1`.

Each case is a copy of a small run, damaged as the number of the case says, and read in a process of its own. It fails
on an exception of another project, the end of the process, more than so many seconds or so much memory, and
a wrong value that nothing reports. `make fuzz CASE=1000042` does one case again.

Values that are wrong because a file was removed, or forged with the right checksums, are counted and do not fail:
nothing tells a worker of which all was removed from one that never was, or a forged file from one that was written so.
"""

from __future__ import annotations

import argparse
import os
import pickle
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from random import Random

import click

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from damage import COUNTED, damage  # noqa: E402
from samples import in_own_process, write_run  # noqa: E402
from use import Report, Truth, read_truth, use  # noqa: E402

from tensortrial.cli import main as commands  # noqa: E402
from tensortrial.maintenance.compaction import compact  # noqa: E402

# What a case would import otherwise, and each one again.
for _name in ("pandas", "tqdm"):
    with suppress(ImportError):
        import_module(_name)
commands.get_help(click.Context(commands))  # of each command

CASES = 1_000_000
"""So many numbers of cases belong to one seed."""
HANG_SECONDS = 180
"""Of wall time. A case takes well below a second; a machine may be busy."""
CPU_SECONDS = 90
MEMORY_BYTES = 8 << 30


@dataclass
class Template:
    run: Path
    truth: Truth


def _write_templates(folder: Path) -> list[Template]:
    compacted = write_run(folder / "compacted", codec="lz4")
    compact(compacted, delete_older_than=0)
    runs = [write_run(folder / "plain"), write_run(folder / "two", workers=2), write_run(folder / "zstd", codec="zstd")]
    return [Template(run, read_truth(run)) for run in (*runs, compacted)]


@dataclass
class Totals:
    cases: int = 0
    damages: Counter[str] = field(default_factory=Counter)
    named: int = 0
    compared: int = 0
    undetected: Counter[str] = field(default_factory=Counter)
    """Wrong values that are only counted, by the damage."""
    failures: list[str] = field(default_factory=list)


@dataclass
class Outcome:
    done: list[tuple[str, str]]
    report: Report | None
    said: str
    """Why there is no report, and what the process wrote before it ended."""


def run_case(case: int, templates: list[Template], folder: Path) -> Outcome:
    """Do one case in a process of its own, forked from this one, which has imported all and started no thread."""
    rng = Random(case)
    template = rng.choice(templates)
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(template.run, run)
    done = damage(run, rng)
    good = templates[0].run
    reader, writer = os.pipe()
    process = os.fork()
    if not process:
        os.close(reader)
        _child(writer, folder / "said.txt", lambda: use(run, good, template.truth, rng))
    os.close(writer)
    data, hung = _read_all(reader, HANG_SECONDS)
    if hung:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    said = (folder / "said.txt").read_text(errors="replace")[-1500:]
    if hung:
        return Outcome(done, None, f"took more than {HANG_SECONDS} s\n{said}")
    if status or not data:
        return Outcome(done, None, f"ended the process with status {os.waitstatus_to_exitcode(status)}\n{said}")
    return Outcome(done, pickle.loads(data), "")


def _child(writer: int, said: Path, work: Callable[[], Report]) -> None:
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        output = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        data = pickle.dumps(work())
        while data:
            data = data[os.write(writer, data) :]
        os._exit(0)
    except BaseException as exc:  # noqa: BLE001 - the process ends
        os.write(2, repr(exc).encode())
        os._exit(70)


def _read_all(reader: int, seconds: float) -> tuple[bytes, bool]:
    """What comes through a pipe until its end, and whether that did not come in time."""
    deadline, pieces = time.monotonic() + seconds, []
    with os.fdopen(reader, "rb", buffering=0) as file:
        while select.select([file], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = file.read(1 << 16)
            if not piece:
                return b"".join(pieces), False
            pieces.append(piece)
    return b"", True


def judge(case: int, outcome: Outcome, totals: Totals) -> None:
    totals.cases += 1
    kinds = [kind for kind, _ in outcome.done]
    totals.damages.update(kinds)
    problems = [outcome.said] if outcome.said else []
    if (report := outcome.report) is not None:
        totals.named += report.named
        totals.compared += report.compared
        problems += report.foreign
        if excuse := next((kind for kind in kinds if kind in COUNTED), None):
            totals.undetected[excuse] += len(report.wrong)
        elif report.wrong:
            problems.append("wrong values that nothing reports:\n" + "\n".join(report.wrong[:5]))
    if problems:
        what = "\n".join(f"  {said}" for _, said in outcome.done)
        text = f"case {case}:\n{what}\n{'  '.join(problems)}\nagain: make fuzz CASE={case}"
        totals.failures.append(text)
        print(text, flush=True)


def summary(totals: Totals, seconds: float) -> str:
    lines = [
        f"{totals.cases} cases in {seconds:.0f} s, {len(totals.failures)} failed",
        f"damages: {', '.join(f'{count} {kind}' for kind, count in totals.damages.most_common())}",
        f"{totals.named} times an error of this project was raised; {totals.compared} values were compared",
    ]
    for kind, count in totals.undetected.most_common():
        lines.append(f"{count} values were wrong without a sign after {kind} (counted only)")
    if totals.failures:
        lines.append("failed: " + ", ".join(text.partition(":")[0].removeprefix("case ") for text in totals.failures))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long cases are begun")
    parser.add_argument("--seed", type=int, default=1, help="which cases")
    parser.add_argument("--case", type=int, help="do this one case, by the number that a failure shows")
    arguments = parser.parse_args()
    totals, begun = Totals(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tensortrial-fuzz-") as folder:
        templates = in_own_process(lambda: _write_templates(Path(folder)), Path(folder))
        case = arguments.seed * CASES if arguments.case is None else arguments.case
        while True:
            judge(case, run_case(case, templates, Path(folder)), totals)
            case += 1
            if arguments.case is not None or time.monotonic() - begun >= arguments.seconds:
                break
    print(summary(totals, time.monotonic() - begun))
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
