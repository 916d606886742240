"""Calls that write many or large pieces: what is in the file, and how much one call writes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensortrial.errors import StorageError
from tensortrial.storage.gathered_write import CALL_BYTES, BoundedWrites, append_all
from tensortrial.storage.open import open_storage, translated

SIZE = st.one_of(st.integers(0, 20), st.sampled_from([CALL_BYTES - 1, CALL_BYTES, CALL_BYTES + 1, 3 * CALL_BYTES + 7]))


def data_of(nbytes: int) -> bytes:
    """Return bytes that are nowhere the same."""
    return np.arange(nbytes // 4 + 1, dtype=np.uint32).tobytes()[:nbytes]


def calls_of(file: Path, pieces: list[Any]) -> list[list[bytes]]:
    """Append pieces to a file, and return what each call of the system wrote."""
    calls: list[list[bytes]] = []
    writev = os.writev

    def recorded(number: int, buffers: list[Any]) -> int:
        calls.append([bytes(each) for each in buffers])
        return writev(number, buffers)

    with pytest.MonkeyPatch.context() as patch, open(file, "ab", buffering=0) as opened:
        patch.setattr(os, "writev", recorded)
        append_all(opened.fileno(), iter(pieces), sum(map(len, pieces)))
    return calls


@given(sizes=st.lists(SIZE, max_size=8))
@settings(max_examples=50, deadline=None)
def test_no_call_writes_much_and_together_they_write_all(sizes: list[int]) -> None:
    data = memoryview(data_of(sum(sizes)))
    ends = np.cumsum(sizes, dtype=int).tolist()
    pieces = [data[end - size : end] for end, size in zip(ends, sizes, strict=True)]
    calls = calls_of(Path(os.devnull), pieces)
    written = [sum(map(len, call)) for call in calls]
    assert all(nbytes <= CALL_BYTES for nbytes in written)
    assert all(nbytes == CALL_BYTES for nbytes in written[:-1])
    assert b"".join(piece for call in calls for piece in call) == data


def test_calls_end_at_multiples_of_their_size_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    data = memoryview(data_of(3 * CALL_BYTES))
    pieces = [data[:40], data[40 : 2 * CALL_BYTES], data[2 * CALL_BYTES :]]
    written = [sum(map(len, call)) for call in calls_of(tmp_path / "file", pieces)]
    assert written == [CALL_BYTES - 100, CALL_BYTES, CALL_BYTES, 100]
    assert (tmp_path / "file").read_bytes()[100:] == data


def test_a_call_has_no_more_pieces_than_the_system_takes(tmp_path: Path) -> None:
    most = os.sysconf("SC_IOV_MAX")
    pieces = [bytes([number % 251]) for number in range(3 * most + 1)]
    assert max(map(len, calls_of(tmp_path / "file", pieces))) == most
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


@pytest.mark.parametrize("how", ["create", "sink"])
def test_a_large_file_is_written_whole(tmp_path: Path, how: str) -> None:
    data = data_of(3 * CALL_BYTES + 5)
    storage = open_storage(str(tmp_path))
    if how == "create":
        storage.create("file", data)
    else:
        sink = storage.sink("file")
        sink.file.write(b"PAR1")
        sink.file.write(data)
        assert sink.file.tell() == len(data) + 4
        sink.publish()
    assert (tmp_path / "file").read_bytes()[-len(data) :] == data


def test_one_write_of_a_file_is_bounded(tmp_path: Path) -> None:
    with BoundedWrites(tmp_path / "file", "xb") as file:
        assert file.write(np.zeros(CALL_BYTES, np.uint16)) == CALL_BYTES
        assert file.write(b"end") == 3
    assert (tmp_path / "file").stat().st_size == CALL_BYTES + 3


def test_a_full_file_system_is_named_and_keeps_no_part(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", tmp_path], capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        sink = open_storage(tmp_path).sink("tensors/file")
        with pytest.raises(StorageError, match="the disk is full"), translated("tensors/file", "write"):
            sink.append([memoryview(data_of(12 << 20))], 12 << 20)
        sink.abort()
        assert list((tmp_path / "tensors").iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)
