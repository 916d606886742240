"""Parts of files are verified when they are first read: by pyarrow, DuckDB, an export, a merge."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import tensortrial
from support.runs import Job, flip
from tensortrial.errors import CorruptFile
from tensortrial.format.checksum import BLOCK_BYTES
from tensortrial.format.verified_files import verified_files
from tensortrial.storage.open import ByteRange, open_storage

VALUES = np.random.default_rng(7).normal(size=(3, 40_000))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    with Job(run, flush_seconds=3600) as job:
        for step, value in enumerate(VALUES):
            job.publish({"w": value, "loss": float(step)})
    return run


@pytest.fixture
def run(tmp_path: Path, written: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "run"))


def first_file(run: Path, folder: str) -> Path:
    return sorted(run.glob(f"{folder}/**/0*.parquet"))[0]


def test_ranges_are_those_of_the_file(run: Path) -> None:
    file = first_file(run, "tensors")
    path, data = file.relative_to(run).as_posix(), file.read_bytes()
    files = verified_files(open_storage(run))
    rng = np.random.default_rng(0)
    for _ in range(100):
        start, end = sorted(rng.integers(0, len(data) + 1, 2).tolist())
        (got,) = files.read_ranges([ByteRange(path, start, end - start)])
        assert got == data[start:end]


def test_damage_is_named_by_the_ranges_that_touch_its_block(run: Path) -> None:
    file = first_file(run, "tensors")
    flip(file, BLOCK_BYTES + 5)
    files = verified_files(open_storage(run))
    path = file.relative_to(run).as_posix()
    files.read_ranges([ByteRange(path, 0, BLOCK_BYTES), ByteRange(path, 2 * BLOCK_BYTES, 100)])
    for start, length in ((BLOCK_BYTES, 1), (BLOCK_BYTES - 1, 2), (0, file.stat().st_size)):
        with pytest.raises(CorruptFile, match=f"{file.name}: bytes 65536 to 131072"):
            files.read_ranges([ByteRange(path, start, length)])
    with pytest.raises(CorruptFile, match="bytes 65536 to 131072"):
        files.check(path)


def test_query_of_a_damaged_chunk_is_refused_and_names_it(run: Path) -> None:
    chunk = first_file(run, "tensors")
    flip(chunk, 200_000)
    with tensortrial.create_trial(run) as trial:
        assert trial.sql("select count(*) from tensor_values where length(name) = 1").fetchall() == [(3,)]
        with pytest.raises(CorruptFile, match=f"{chunk.name}: bytes 196608 to 262144"):
            trial.sql("select max(octet_length(value)) from tensor_values").fetchall()


@pytest.mark.parametrize("folder", ["index", "tensors"])
def test_exchanged_files_are_named(run: Path, folder: str) -> None:
    one, other = sorted(run.glob(f"{folder}/**/0*.parquet"))[:2]
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    with tensortrial.create_trial(run) as trial:
        trial.sql("select * from tensors").fetchall()
        trial.sql("select name from tensor_values").fetchall()
        assert {Path(path) for path in trial.damaged} == {one.relative_to(run), other.relative_to(run)}
