"""Histories of one run that versions of the project write, compact and read in turn: each release, and today's code.

`tests/releases` holds the wheel of every release. See its README.md for how one is added.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from releases import release_job

HERE = Path(__file__).resolve().parent
WHEELS = sorted(HERE.glob("tensortrial-*.whl"))
TODAY = "today"

_LATER_COLUMNS = "its columns are not those of an index file"


class Version:
    """A process in which one version of the project answers requests."""

    def __init__(self, name: str, path: list[str]) -> None:
        self.name = name
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(HERE / "release_job.py")]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, **pipes)

    def ask(self, do: str, run: Path | str = "", **request: Any) -> Any:
        """Return what it answers.

        Raises:
            Refused: It raised an error.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, "run": str(run), **request}) + "\n")
        self._process.stdin.flush()
        reply = json.loads(self._process.stdout.readline())
        if "error" in reply:
            raise Refused(f"{self.name}, {do}: {reply['error']}", reply["kinds"])
        return reply["reply"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Refused(Exception):
    """A version raised an error of the classes `kinds`."""

    def __init__(self, message: str, kinds: list[str]) -> None:
        self.kinds = kinds
        super().__init__(message)


@contextmanager
def opened(wheel: Path, folder: Path) -> Iterator[list[Version]]:
    """Start a release, whose wheel is unpacked into `folder`, and today's code."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    both = [Version(wheel.name.split("-")[1], [str(folder)]), Version(TODAY, [*filter(None, sys.path)])]
    try:
        yield both
    finally:
        for version in both:
            version.close()


class History:
    """A run, and what it must hold."""

    def __init__(self, run: Path, workers: int = 1, codec: str = "none") -> None:
        self.run = run
        self._workers, self._codec = workers, codec
        self.steps = 0
        """How many the run holds."""
        self._went_back = False

    def write(self, version: Version, steps: int = 5, closes: bool = True, flush_every: int = 2) -> None:
        """Save further steps."""
        options = {"workers": self._workers, "codec": self._codec, "flush_every": flush_every, "closes": closes}
        resume = self.steps > 0
        version.ask("write", self.run, first=self.steps, steps=steps, resume=resume, **options)
        self.steps += steps

    def go_back(self, version: Version, first: int, steps: int) -> None:
        """Save steps from a step of training on, in place of those that were saved there."""
        options = {"workers": self._workers, "codec": self._codec, "flush_every": 2, "closes": True}
        version.ask("write", self.run, first=first, steps=steps, resume=True, goes_back=True, **options)
        self.steps = first + steps
        self._went_back = True

    def compact(self, version: Version) -> None:
        damaged = version.ask("compact", self.run)["damaged"]
        # A release leaves index files with columns of a later one as they are: it would lose these columns.
        expected = [] if version.name == TODAY else [text for text in damaged.values() if _LATER_COLUMNS in text]
        assert list(damaged.values()) == expected

    def check(self, *versions: Version) -> None:
        """Check that each version reads all that was saved, or refuses the run as a whole."""
        for version in versions:
            try:
                found = version.ask("read", self.run)
            except Refused as exc:
                if version.name == TODAY or "UnknownFormat" not in exc.kinds:
                    raise
                continue
            expected = self._rows()
            assert found["damaged"] == {}
            assert sorted(found["rows"]) == sorted(expected), version.name
            for key, row in expected.items():
                assert found["rows"][key][:3] == row[:3], f"{key} in {version.name}"
                assert found["rows"][key][3] == pytest.approx(row[3], rel=1e-4, abs=1e-5), f"{key} in {version.name}"
            in_chunks = sum(row[0] is not None and row[1] != [] for row in expected.values())
            assert found["counted"] == len(expected), version.name
            # What was set aside may lie in chunks with what was not.
            assert found["values"] == in_chunks or (self._went_back and found["values"] > in_chunks), version.name

    def _rows(self) -> dict[str, Any]:
        rows: dict[str, Any] = {}
        for step in range(self.steps):
            for rank in range(self._workers):
                loss = np.array(step + 0.25 * rank)
                rows[f"{step}/worker_{rank}/loss"] = [loss.dtype.name, [], release_job.digest(loss), {}]
                for name in release_job.KINDS:
                    rows[f"{step}/worker_{rank}/{name}"] = expected_row(name, step, rank)
        return rows


def expected_row(name: str, step: int, rank: int) -> list[Any]:
    value = release_job.value_of(name, step, rank)
    statistics = {}
    if name in ("weight", "reduced"):
        statistics = {"mean": value.mean(), "l2": np.linalg.norm(value.ravel()), "abs_max": np.abs(value).max()}
    if name == "reduced":
        return [None, None, None, statistics]
    return [value.dtype.name, list(value.shape), release_job.digest(value), statistics]


def random_history(versions: list[Version], run: Path, rng: Random) -> int:
    """Let versions write and compact a run in turn, at random, and both read it after each. Return the steps."""
    history = History(run, rng.choice([1, 1, 2]), rng.choice(["none", "lz4", "zstd"]))
    history.write(rng.choice(versions), rng.randint(1, 8))
    for _ in range(6):
        version = rng.choice(versions)
        if rng.random() < 0.5:
            history.compact(version)
        else:
            history.write(version, rng.randint(1, 12), closes=rng.random() < 0.7, flush_every=rng.choice([1, 3, 100]))
        history.check(*versions)
    return history.steps
