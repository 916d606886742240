"""A parser of TensorFlow's Event messages, as smdebug saved tensors in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...mode import ModeKeys
from ...tfevents.wire import Value, fields, floating, message
from ..times import nanoseconds


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """One tensor of an event, not decoded yet."""

    name: str
    proto: memoryview
    """The TensorProto."""
    saved_at: int
    """Nanoseconds since 1970, UTC; 0 if not known."""
    metadata: memoryview | None
    """The metadata that smdebug wrote with the tensor."""

    def step(self) -> tuple[ModeKeys, int] | None:
        """Return the mode and the step in it, or None if the metadata does not name both."""
        known = dict(_plugins(self.metadata)) if self.metadata is not None else {}
        try:
            mode, mode_step = ModeKeys(int(known["mode"])), int(known["mode_step"])
        except (KeyError, ValueError):
            return None
        return (mode, mode_step) if 0 <= mode_step < 1 << 63 else None


def saved_tensors(event: memoryview) -> Iterator[SavedTensor]:
    """Yield the tensors of an event. Raises ValueError for a damaged event."""
    saved_at = 0
    for field, value in fields(event):
        if field == 1:
            saved_at = nanoseconds(floating(value))
        elif field == 5:
            for number, summary_value in fields(message(value)):
                if number == 1:
                    yield from _saved_tensor(message(summary_value), saved_at)


def _saved_tensor(value: memoryview, saved_at: int) -> Iterator[SavedTensor]:
    found: dict[int, Value] = dict(fields(value))
    if 1 in found and 8 in found:
        metadata = message(found[9]) if 9 in found else None
        yield SavedTensor(str(message(found[1]), "utf-8"), message(found[8]), saved_at, metadata)


def _plugins(metadata: memoryview) -> Iterator[tuple[str, str]]:
    for field, value in fields(metadata):
        if field == 1:
            plugin = dict(fields(message(value)))
            name, content = plugin.get(1, memoryview(b"")), plugin.get(2, memoryview(b""))
            yield str(message(name), "utf-8"), str(message(content), "utf-8", "replace")
