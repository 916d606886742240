"""A cache by which scalar events are recognised instead of parsed.

An event of one scalar differs from the earlier ones of its tag only in its time, its step and the four bytes of the
value. So the first event of a tag is parsed, and those after it are looked up by their remaining bytes. An import
spends most of its time on such events.
"""

from __future__ import annotations

import struct

from ...tfevents.wire import varint

_TIME_KEY, _STEP_KEY = 0x09, 0x10
"""The keys of the first two fields. Every known writer puts them in this order."""
_TIME_END = 9
_SHORTEST = 12
_TIME, _VALUE = struct.Struct("<d"), struct.Struct("<f")
_MAX_KNOWN = 1 << 16
"""The most entries: a program that writes ever new tags must not fill the memory."""


class KnownScalars:
    """The scalar events seen so far, one for each tag and layout."""

    def __init__(self) -> None:
        # The keys are the number of bytes after the value, then all bytes after the step without those of the value.
        self._names: dict[int, dict[bytes, int]] = {}
        self._count = 0

    def clear(self) -> None:
        """Forget all events."""
        self._names.clear()
        self._count = 0

    def add(self, name: int, event: bytes, value: float) -> None:
        """Recognise later events like this one, unless the position of its value is ambiguous.

        Args:
            name: What `find` returns for such events.
            event: The event, which has one value in single precision.
            value: That value. Its bytes must occur in the event once.
        """
        if self._count >= _MAX_KNOWN or value != value or len(event) < _SHORTEST or event[0] != _TIME_KEY:
            return
        body, content = event[_body_start(event)[1] :], _VALUE.pack(value)
        if body.count(content) != 1:
            return
        start = body.index(content)
        after = len(body) - start - _VALUE.size
        self._names.setdefault(after, {})[body[:start] + body[start + _VALUE.size :]] = name
        self._count += 1

    def find(self, event: bytes) -> tuple[int, int, float, float] | None:
        """Return name, step, time in seconds since 1970, and value of an event; None for an unknown event.

        The name is the one that was passed to `add`.
        """
        if len(event) < _SHORTEST or event[0] != _TIME_KEY:
            return None
        step, begin = _body_start(event)
        for after, names in self._names.items():
            start = len(event) - after - _VALUE.size
            name = names.get(event[begin:start] + event[start + _VALUE.size :]) if start >= begin else None
            if name is not None:
                return name, step, *_TIME.unpack_from(event, 1), *_VALUE.unpack_from(event, start)
        return None


def _body_start(event: bytes) -> tuple[int, int]:
    """Return the step, and the position after time and step; the end of the event for a step below 0."""
    if event[_TIME_END] != _STEP_KEY:
        return 0, _TIME_END
    try:
        step, begin = varint(event, _TIME_END + 1)
    except ValueError:
        return 0, len(event)
    return (0, len(event)) if step >> 63 else (step, begin)
