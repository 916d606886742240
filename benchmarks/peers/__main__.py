"""tensortrial and its peers side by side: write, read, find, summarize, on the same data in the same run.

    python -m peers [--full] [--rounds 5] [--peers tensortrial,numpy,…] [--json FILE]

Prints Markdown. Each piece of work is done in a process of its own. All peers take their turns in each round, each
round begins with another one, and a first round, which touches the memory that the page cache will use, does not count.
What counts of a peer is the median of its ratios to tensortrial in the same round. No peer waits for the disk (fsync),
but the SQLite of MLflow and Trackio may at its commits. Values are read and compared with what was written before
anything is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from common import file_system, processor, scratch

from . import NAMES, adapter
from .report import report
from .work import Scalars, Tensors

SIZES = {"4 kB": 4_000, "100 kB": 100_000, "4 MB": 4_000_000}
_PER_STEP = 500  # scalars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=128, help="of each size of tensor")
    parser.add_argument("--scalars", type=int, default=200_000)
    parser.add_argument("--full", action="store_true", help="1 GB of each size and 1 million scalars")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", default=",".join(NAMES))
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--smdebug-python", default=".venv-smdebug/bin/python", help="of smdebug's own environment")
    parser.add_argument("--json", type=Path, help="write the measured times there, too")
    arguments = parser.parse_args()
    if arguments.full:
        arguments.megabytes, arguments.scalars = 1000, 1_000_000
    comparison = Comparison(arguments)
    with scratch() as folder:
        rounds = [comparison.round(folder, number) for number in range(arguments.rounds + 1)]
        found = {
            "command": f"python -m peers {shlex.join(sys.argv[1:])}".strip(),
            "machine": f"{os.cpu_count()} cores of {processor()}, {file_system(folder)}",
            "megabytes": arguments.megabytes,
            "scalars": arguments.scalars,
            "versions": comparison.versions(),
            "failed": comparison.failed,
            "rounds": rounds[1:],
        }
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))
    print(report(found))


class Failed(Exception):
    """A process ended with an error."""


class Comparison:
    """The processes of the installed peers. Failures are kept in `failed`, and the rest goes on."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.failed: list[str] = []
        self._smdebug = arguments.smdebug_python
        self.peers = [name for name in NAMES if name in arguments.peers.split(",")]
        if "smdebug" in self.peers and not Path(self._smdebug).exists():
            print(f"smdebug is left out: there is no {self._smdebug} (make env-smdebug)", file=sys.stderr)
            self.peers.remove("smdebug")
        total = arguments.megabytes * 1_000_000
        self._tensors = {size: Tensors.of(SIZES[size], total) for size in arguments.sizes.split(",")}
        self._scalars = Scalars(_PER_STEP, arguments.scalars // _PER_STEP)

    def versions(self) -> dict[str, str]:
        code = "from peers import adapter; import sys; print(adapter(sys.argv[1]).versions())"
        return {name: self._python(name, "-c", code, name).strip() for name in self.peers}

    def round(self, folder: Path, number: int) -> dict[str, Any]:
        """Let each peer do all of its work once. The numbered rounds begin with different peers."""
        found: dict[str, Any] = {"limits": {}, "peers": {name: {} for name in self.peers}}
        first = number % len(self.peers)
        in_turn = [*self.peers[first:], *self.peers[:first]]
        for size, work in self._tensors.items():
            found["limits"][size] = json.loads(
                self._python("", "-m", "peers.limits", folder / "limits", "--work", json.dumps(asdict(work)))
            )
            _clear(folder / "limits")
            for name in in_turn:
                if "tensors" in adapter(name).keeps:
                    self._try(found["peers"][name], size, self._tensor_work, name, folder, work)
        for name in in_turn:
            if "scalars" in adapter(name).keeps:
                self._try(found["peers"][name], "scalars", self._scalar_work, name, folder)
        return found

    def _try(self, found: dict[str, Any], kind: str, work: Callable[..., Any], name: str, *arguments: Any) -> None:
        try:
            found[kind] = work(name, *arguments)
        except Failed as exc:
            _clear(arguments[0] / name)
            print(exc, file=sys.stderr)
            self.failed.append(f"{adapter(name).title}, {kind}: {str(exc).strip().splitlines()[-1]}")

    def _tensor_work(self, name: str, folder: Path, work: Tensors) -> dict[str, Any]:
        if limit := adapter(name).tensor_limit:
            work = replace(work, steps=min(work.steps, max(8, limit // work.per_step)))
        found: dict[str, Any] = {"write": self._work(name, "write", folder / name, work)}
        os.sync()
        for action in ("discover", "read"):
            found[action] = self._work(name, action, folder / name, work)
        if adapter(name).keeps_statistics:
            _clear(folder / name)
            self._work(name, "write-statistics", folder / name, work)
        found["statistics"] = self._work(name, "statistics", folder / name, work)
        _clear(folder / name)
        return {**found, "work": asdict(work)}

    def _scalar_work(self, name: str, folder: Path) -> dict[str, Any]:
        work = self._scalars
        if limit := adapter(name).scalar_limit:
            work = replace(work, steps=min(work.steps, limit // work.per_step))
        found: dict[str, Any] = {}
        for action in ("write", "discover", "read"):
            found[action] = self._work(name, action, folder / name, work)
        _clear(folder / name)
        return {**found, "work": asdict(work)}

    def _work(self, name: str, action: str, folder: Path, work: Tensors | Scalars) -> Any:
        kind = "tensors" if isinstance(work, Tensors) else "scalars"
        print(f"{name}: {action}, {work}", file=sys.stderr)
        said = self._python(name, "-m", "peers.worker", name, kind, action, folder, "--work", json.dumps(asdict(work)))
        return json.loads(said.splitlines()[-1])

    def _python(self, name: str, *arguments: object) -> str:
        done = run_python(self._smdebug if name == "smdebug" else sys.executable, *map(str, arguments))
        if done.returncode:
            raise Failed(f"{name} {' '.join(map(str, arguments))} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


def run_python(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a Python that finds installed packages and those of the benchmarks, from whatever folder.

    The root of a clone has a folder `tensorstore`, which must not pass for Google's package.
    """
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.absolute()), "PYTHONSAFEPATH": "1"}
    return subprocess.run([python, *arguments], capture_output=True, text=True, env=env)


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()


if __name__ == "__main__":
    main()
