"""Many checksums at once are those of the polynomial."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from support.smdebug_runs import masked_crc
from tensortrial.tfevents.crc32c import masked_crc32c, masked_crc32cs

LENGTHS = st.one_of(st.integers(0, 40), st.sampled_from([255, 256, 257, 272, 511, 512, 513, 1000, 2049]))


def test_the_checksum_is_that_of_the_standard() -> None:
    # The check value of CRC-32C, of "123456789", is e3069283.
    crc = 0xE3069283
    expected = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc32c(b"123456789") == expected == int.from_bytes(masked_crc(b"123456789"), "little")


@given(st.lists(st.tuples(st.integers(0, 20), LENGTHS), min_size=1, max_size=8), st.integers(0, 2**32 - 1))
def test_stretches_of_any_length_anywhere(stretches: list[tuple[int, int]], seed: int) -> None:
    starts, lengths, position = [], [], 0
    for gap, length in stretches:
        starts.append(position + gap)
        lengths.append(length)
        position += gap + length
    data = np.random.default_rng(seed).integers(0, 256, position, np.uint8)
    found = masked_crc32cs(data, np.array(starts), np.array(lengths))
    for start, length, crc in zip(starts, lengths, found.tolist(), strict=True):
        assert crc == int.from_bytes(masked_crc(data[start : start + length].tobytes()), "little")


def test_of_no_stretches() -> None:
    nothing = np.zeros(0, np.int64)
    assert len(masked_crc32cs(np.zeros(0, np.uint8), nothing, nothing)) == 0
