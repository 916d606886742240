"""Folders of event files, read in two ways: by TensorBoard's own reader, and, where that is not installed, by ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensortrial.tfevents.tfrecord import DamagedRecord, records
from tensortrial.tfevents.wire import fields, message


def read_by_tensorboard(folder: Path) -> Any:
    """TensorBoard's EventAccumulator, with all that is in the folder."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    kinds = ("scalars", "histograms", "compressedHistograms", "tensors")
    return EventAccumulator(str(folder), size_guidance=dict.fromkeys(kinds, 0)).Reload()


def steps_of_tags(folder: Path) -> dict[str, list[int]]:
    """The steps of each tag, in the order of the files and of what is in them."""
    found: dict[str, list[int]] = {}
    for file in sorted(folder.glob("*tfevents*")):
        data = file.read_bytes()
        for _, record in records(lambda start, length, data=data: data[start : start + length]):  # type: ignore[misc]
            assert not isinstance(record, DamagedRecord), record
            event = dict(fields(record))
            for _, value in fields(message(event[5])) if 5 in event else ():
                tag = str(message(dict(fields(message(value)))[1]), "utf-8")
                found.setdefault(tag, []).append(int(event.get(2, 0)))  # type: ignore[arg-type]
    return found
