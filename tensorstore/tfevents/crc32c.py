"""CRC-32C (Castagnoli) of many stretches of a buffer at once, by numpy.

A checksum goes over its bytes one after the other, but those of different stretches do not touch each other: so the
stretches are cut into lanes, lanes of about the same length are laid side by side, and each step takes four bytes of
every lane. Two facts of the polynomial's arithmetic make that exact: the register without its initial ones stays 0 over
leading zeros, so a short lane is filled up in front; and what follows a lane changes its register as so many zeros
would, which is linear.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = npt.NDArray[np.uint8]
Words: TypeAlias = npt.NDArray[np.uint32]
Positions: TypeAlias = npt.NDArray[np.int64]

_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF
_LANE = 256
_STEP = 16
"""Lanes are filled up to a multiple of this many bytes."""


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum of one stretch, masked as TFRecord stores it."""
    stretch = np.frombuffer(data, np.uint8)
    return int(masked_crc32cs(stretch, np.zeros(1, np.int64), np.array([len(stretch)]))[0])


def masked_crc32cs(data: Bytes, starts: Positions, lengths: Positions) -> Words:
    """The checksums of the stretches of `data` that begin at `starts` and have `lengths` bytes, masked as TFRecord
    stores them: rotated right by 15 bits, plus a constant."""
    crcs = _registers(data, starts, lengths) ^ _registers_of_zeros(lengths) ^ np.uint32(_ONES)
    masked: Words = (crcs >> np.uint32(15) | crcs << np.uint32(17)) + np.uint32(0xA282EAD8)
    return masked


def _registers(data: Bytes, starts: Positions, lengths: Positions) -> Words:
    """The registers after each stretch, begun at 0."""
    lanes = np.maximum(-(-lengths // _LANE), 1)
    of = np.repeat(np.arange(len(starts)), lanes)
    ends = starts + lengths
    # Numbered from a stretch's end, so that only its first lane is short.
    number = np.repeat(np.cumsum(lanes), lanes) - 1 - np.arange(len(of))
    lane_ends = ends[of] - number * _LANE
    lane_lengths = np.minimum(lane_ends - starts[of], _LANE)
    registers = _lane_registers(data, lane_ends, lane_lengths)
    first = np.cumsum(lanes) - lanes
    found: Words = registers[first]
    low, high = _after_lane()
    for stretch in np.flatnonzero(lanes > 1):
        begin = int(first[stretch])
        register = int(found[stretch])
        for lane in registers[begin + 1 : begin + int(lanes[stretch])].tolist():
            register = low[register & 0xFFFF] ^ high[register >> 16] ^ lane
        found[stretch] = register
    return found


def _lane_registers(data: Bytes, ends: Positions, lengths: Positions) -> Words:
    found = np.zeros(len(ends), np.uint32)
    widths = -(-lengths // _STEP) * _STEP
    for width in np.unique(widths).tolist():
        if width:
            chosen = np.flatnonzero(widths == width)
            found[chosen] = _side_by_side(_filled(data, ends[chosen], lengths[chosen], width))
    return found


def _filled(data: Bytes, ends: Positions, lengths: Positions, width: int) -> Bytes:
    """One row a lane, with zeros in front."""
    if np.any(ends < width):
        data, ends = np.concatenate([np.zeros(width, np.uint8), data]), ends + width
    rows: Bytes = np.lib.stride_tricks.sliding_window_view(data, width)[ends - width]
    # Fewer than _STEP bytes of a lane are not its own.
    rows[:, :_STEP][np.arange(_STEP) < (width - lengths)[:, None]] = 0
    return rows


def _side_by_side(rows: Bytes) -> Words:
    low, high = _after_word()
    register = np.zeros(len(rows), np.uint32)
    for words in np.ascontiguousarray(rows.view("<u4").T):
        register ^= words
        halves = register.view(np.uint16).reshape(-1, 2)
        register = low[halves[:, _LOW]] ^ high[halves[:, _HIGH]]
    return register


_LOW, _HIGH = (0, 1) if np.little_endian else (1, 0)


@lru_cache(maxsize=1)
def _after_word() -> tuple[Words, Words]:
    return _tables(4)


@lru_cache(maxsize=1)
def _after_lane() -> tuple[list[int], list[int]]:
    low, high = _tables(_LANE)
    return low.tolist(), high.tolist()


def _tables(zeros: int) -> tuple[Words, Words]:
    """What becomes of each lower and of each upper half of a register over so many zero bytes."""
    bits = [_over_zeros(1 << bit, zeros) for bit in range(32)]
    return _combinations(bits[:16]), _combinations(bits[16:])


def _combinations(bits: list[int]) -> Words:
    return reduce(lambda table, bit: np.concatenate([table, table ^ np.uint32(bit)]), bits, np.zeros(1, np.uint32))


def _registers_of_zeros(lengths: Positions) -> Words:
    """The registers over so many zero bytes, begun with ones: what the ones leave in a checksum."""
    distinct, of = np.unique(lengths, return_inverse=True)
    return np.array([_over_zeros(_ONES, length) for length in distinct.tolist()], np.uint32)[of]


@lru_cache(maxsize=1 << 12)
def _over_zeros(register: int, zeros: int) -> int:
    """The register after so many zero bytes, by the powers of two in them."""
    power = 0
    while zeros:
        if zeros & 1:
            register = _product(_power(power), register)
        zeros >>= 1
        power += 1
    return register


@lru_cache(maxsize=64)
def _power(exponent: int) -> tuple[int, ...]:
    """What becomes of each bit of a register over 2**exponent zero bytes."""
    if exponent == 0:
        return tuple(_over_zero_byte(1 << bit) for bit in range(32))
    half = _power(exponent - 1)
    return tuple(_product(half, bit) for bit in half)


def _product(power: tuple[int, ...], register: int) -> int:
    return reduce(lambda found, bit: found ^ (power[bit] if register >> bit & 1 else 0), range(32), 0)


def _over_zero_byte(register: int) -> int:
    for _ in range(8):
        register = register >> 1 ^ (_POLYNOMIAL if register & 1 else 0)
    return register
