"""Messages that are written come back."""

from __future__ import annotations

import math
import struct

import pytest
from hypothesis import strategies as st

from tensortrial.tfevents.wire import (
    fields,
    float_field,
    message,
)

NUMBERS = st.integers(1, 1 << 20)


@pytest.mark.parametrize("value", [1e300, -1e300])
def test_what_single_precision_cannot_hold_is_an_infinity(value: float) -> None:
    ((_, read),) = fields(memoryview(float_field(2, value)))
    (found,) = struct.unpack("<f", message(read))
    assert found == math.copysign(math.inf, value)
