"""DuckDB reads one file in several threads, each of which seeks and then reads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tensortrial.storage.duckdb_filesystem import RunFileSystem
from tensortrial.storage.open import open_storage

NUMBERS = np.arange(50_000, dtype="<u8")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "numbers").write_bytes(NUMBERS.tobytes())
    storage = open_storage(str(tmp_path))
    with RunFileSystem("test", lambda _: (storage, "numbers")).open("test://numbers") as opened:
        yield opened


def test_each_thread_reads_from_where_it_sought(file: Any) -> None:
    file.seek(8 * 7)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lambda: (file.seek(8 * 1000), file.read(8))[1]).result() == NUMBERS[1000].tobytes()
    assert (file.tell(), file.read(8)) == (8 * 7, NUMBERS[7].tobytes())
    assert (file.read(16), file.tell()) == (NUMBERS[8:10].tobytes(), 8 * 10)


def test_threads_that_are_switched_between_seek_and_read_get_their_own_bytes(file: Any) -> None:
    def read(seed: int) -> int:
        wrong = 0
        for at in np.random.default_rng(seed).integers(0, len(NUMBERS) - 4, 1000).tolist():
            file.seek(8 * at)
            wrong += file.read(32) != NUMBERS[at : at + 4].tobytes()
        return wrong

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(read, range(8))) == 0
    finally:
        sys.setswitchinterval(interval)
