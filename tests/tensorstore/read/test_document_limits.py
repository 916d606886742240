"""A document of a run that is huge or no regular file is a named error, and does not fill the memory of its reader."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import Job
from tensortrial.errors import ConfigurationError, TensorTrialError
from tensortrial.format.checksum import document_bytes
from tensortrial.format.schema import STOP_FILE
from tensortrial.rules import invoke_rule, make_rule
from tensortrial.storage.base import DOCUMENT_BYTES
from tensortrial.storage.open import open_storage

HUGE = 20 << 30

DOCUMENTS = (
    "run.json",
    "collections/worker_0.json",
    "end/worker_0.json",
    "leases/worker_0=00000000.json",
    "lost/a.json",
    "stop.json",
    "findings/a.parquet",
    "manifest.parquet",
)


def sparse(file: Path) -> None:
    file.touch()
    os.truncate(file, HUGE)


def pipe(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with tensortrial.Run(tmp_path / "run", environment=False) as run:
        run.log({"loss": 1.0})
    return tmp_path / "run"


@pytest.fixture
def bounded() -> Iterator[None]:
    """Fail a test that takes much more memory than the largest document has."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 << 10


@pytest.mark.parametrize("damage", [sparse, pipe])
@pytest.mark.parametrize("path", DOCUMENTS)
@pytest.mark.usefixtures("bounded")
def test_a_document_without_an_end_is_a_named_error(run: Path, path: str, damage: Callable[[Path], None]) -> None:
    (run / path).parent.mkdir(exist_ok=True)
    damage(run / path)
    if path == "run.json":
        for read in (tensortrial.create_trial, tensortrial.open_runs, tensortrial.Run):
            with pytest.raises(TensorTrialError):
                read(run)
        return
    assert path in [damaged.path for damaged in tensortrial.create_trial(run).verify().damaged]
    for read in (tensortrial.create_trial, tensortrial.open_runs):
        with read(run) as opened:
            opened.refresh()
    with suppress(TensorTrialError), tensortrial.Run(run, resume=True, environment=False) as resumed:
        resumed.log({"loss": 1.0})


@pytest.mark.usefixtures("bounded")
def test_a_large_index_file_is_verified_in_pieces_before_it_is_read_whole(run: Path) -> None:
    (file,) = (run / "index").rglob("*.parquet")
    data = file.read_bytes()
    os.truncate(file, HUGE)
    with file.open("r+b") as opened:
        opened.seek(HUGE - len(data))
        opened.write(data)
    verified = tensortrial.create_trial(run).verify()
    assert str(file.relative_to(run)) in [damaged.path for damaged in verified.damaged]


def test_no_document_is_written_that_no_reader_accepts() -> None:
    with pytest.raises(ConfigurationError, match="keep less metadata"):
        document_bytes({"text": "x" * DOCUMENT_BYTES})


def test_the_request_of_a_rule_is_valid_whatever_the_tensor_is_called(tmp_path: Path) -> None:
    with Job(tmp_path / "run") as job:
        job.step({"n" * 200_000: np.array([np.nan])})
    invoke_rule(make_rule("ExplodingTensor", tensortrial.create_trial(tmp_path / "run"), action_str="StopTraining"))
    assert len(open_storage(tmp_path / "run").read_document(STOP_FILE, 64 << 10)) < 64 << 10
