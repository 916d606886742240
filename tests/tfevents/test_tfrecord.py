"""The framing of records, complete and damaged."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.smdebug_runs import framed, masked_crc
from tensortrial.tfevents import tfrecord
from tensortrial.tfevents.tfrecord import DamagedRecord, masked_crc32c, records


def read_all(data: bytes, resume_at: Sequence[int] = ()) -> list[tuple[int, bytes | DamagedRecord]]:
    found = records(lambda start, length: data[start : start + length], resume_at)
    return [(start, each if isinstance(each, DamagedRecord) else bytes(each)) for start, each in found]


@given(st.lists(st.binary(max_size=100)), st.sampled_from([16, 30, 64, 1 << 20]))
def test_records_are_read_back_with_any_size_of_blocks(contents: list[bytes], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord, "BLOCK", block)
        data, starts = b"", []
        for number, content in enumerate(contents):
            starts.append(len(data))
            data += framed(content, None) if number % 2 else framed(content)
        assert read_all(data) == list(zip(starts, contents, strict=True))


@given(st.lists(st.binary(max_size=600)))
def test_framed_records_are_read_back(contents: list[bytes]) -> None:
    data = tfrecord.framed(contents)
    assert data == b"".join(framed(content, None) for content in contents)
    assert [record for _, record in read_all(data)] == contents


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.integers(1, 30)), max_size=4),
    st.integers(0, 3000),
    st.sampled_from([64, 3000, 1 << 20]),
)
def test_records_whose_lengths_repeat_are_read_back(parts: list[tuple[list[int], int]], cut: int, block: int) -> None:
    contents = [bytes(length) for cycle, times in parts for _ in range(times) for length in cycle]
    whole = b"".join(framed(content, None) for content in contents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tfrecord, "BLOCK", block)
        patch.setattr(tfrecord, "_FEWEST", 4)
        assert [record for _, record in read_all(whole)] == contents
        damaged = bytearray(whole)
        damaged[len(whole) // 2 : len(whole) // 2 + 8] = bytes(8)
        patched = read_all(bytes(damaged[: max(0, len(whole) - cut)]))
        patch.setattr(tfrecord, "_FEWEST", 1 << 30)
        assert list(map(str, patched)) == list(map(str, read_all(bytes(damaged[: max(0, len(whole) - cut)]))))


def test_a_record_with_a_wrong_checksum_does_not_hide_those_behind_it() -> None:
    bad = bytearray(tfrecord.framed([b"first", b"second", b"third"]))
    bad[len(framed(b"first")) + 12] ^= 1
    (_, one), (_, damaged), (_, three) = read_all(bytes(bad))
    assert (one, three) == (b"first", b"third")
    assert "a record of 6 bytes" in str(damaged)


def test_after_a_bad_record_reading_goes_on_where_the_next_is_known_to_be() -> None:
    first, second, third = framed(b"first"), framed(b"second"), framed(b"third")
    bad = bytearray(first + second + third)
    bad[len(first)] ^= 1  # the length of the second
    starts = [0, len(first), len(first + second)]
    (_, one), (at, damaged), (_, three) = read_all(bytes(bad), starts)
    assert (one, at, three) == (b"first", len(first), b"third")
    assert isinstance(damaged, DamagedRecord)
    assert "checksum" in str(damaged)
    assert len(read_all(bytes(bad))) == 2


def test_a_wrong_checksum_of_a_record_is_seen_where_there_is_a_real_one() -> None:
    ((_, damaged),) = read_all(framed(b"content", b"\1\2\3\4"))
    assert isinstance(damaged, DamagedRecord)


@pytest.mark.parametrize("cut", [1, 8, 12, 15, 18])
def test_an_incomplete_end_is_damaged(cut: int) -> None:
    whole = framed(b"one")
    (_, one), (at, damaged) = read_all(whole + framed(b"two")[:cut])
    assert (one, at) == (b"one", len(whole))
    assert isinstance(damaged, DamagedRecord)
    assert "ends within" in str(damaged)


def test_an_impossible_length_is_damaged() -> None:
    length = (1 << 60).to_bytes(8, "little")
    ((_, damaged),) = read_all(length + masked_crc(length) + b"x" * 50)
    assert "claims" in str(damaged)


def test_the_checksum_is_that_of_the_standard() -> None:
    # The check value of CRC-32C, of "123456789", is e3069283.
    crc = 0xE3069283
    expected = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc32c(b"123456789") == expected == int.from_bytes(masked_crc(b"123456789"), "little")


def test_the_checksum_needs_no_c_extension_and_warns_of_none() -> None:
    code = """
import sys
sys.modules["google_crc32c.cext"] = None
from tensortrial.tfevents.tfrecord import masked_crc32c
import google_crc32c
print(google_crc32c.implementation, hex(masked_crc32c(b"123456789")))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"python {hex(masked_crc32c(b'123456789'))}\n", "")
