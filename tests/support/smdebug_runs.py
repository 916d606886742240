"""Writes runs as smdebug wrote them, from the description of its files alone: nothing of the importer is used here."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

MODES = {"TRAIN": 1, "EVAL": 2, "PREDICT": 3, "GLOBAL": 4}
DTYPES = {
    np.dtype(kind): code
    for code, kind in (
        *((1, "f4"), (2, "f8"), (3, "i4"), (4, "u1"), (5, "i2"), (6, "i1"), (8, "c8"), (9, "i8"), (10, "?")),
        *((14, ml_dtypes.bfloat16), (17, "u2"), (18, "c16"), (19, "f2"), (22, "u4"), (23, "u8")),
    )
}
SAVED_AT = 1_600_000_000.25
# What smdebug writes where the checksum of a record belongs.
CONSTANT_CHECKSUM = bytes.fromhex("b3c02d06")


class OldRun:
    """A folder that is filled step by step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def collections(
        self, described: Mapping[str, Mapping[str, Any]], worker: str = "worker_0", num_workers: int = 1
    ) -> None:
        document = {
            "collections": {name: {"name": name, **each} for name, each in described.items()},
            "_meta": {"num_workers": num_workers},
        }
        self._write(f"collections/000000000/{worker}_collections.json", json.dumps(document).encode())

    def step(
        self,
        tensors: Mapping[str, Any],
        mode: str = "TRAIN",
        mode_step: int = 0,
        global_step: int | None = None,
        worker: str = "worker_0",
        shapes: Mapping[str, Iterable[int]] | None = None,
    ) -> None:
        global_step = mode_step if global_step is None else global_step
        path = f"events/{global_step:012d}/{global_step:012d}_{worker}.tfevents"
        data, payload = b"", []
        for name, value in tensors.items():
            record = framed(event(name, value, mode, mode_step, global_step))
            payload.append({"tensorname": name, "start_idx": len(data), "length": len(record)})
            data += record
        self._write(path, data)
        index = {
            "meta": {"mode": mode, "mode_step": mode_step, "event_file_name": path},
            "tensor_payload": payload,
            "shape_payload": [
                {"tensorname": name, "originalname": name, "shape": list(shape)}
                for name, shape in (shapes or {}).items()
            ],
        }
        self._write(f"index/{global_step // 1000:09d}/{global_step:012d}_{worker}.json", json.dumps(index).encode())

    def end(self) -> None:
        self._write("training_job_end.ts", b"")

    def events(self, global_step: int, worker: str = "worker_0") -> Path:
        return self.folder / f"events/{global_step:012d}/{global_step:012d}_{worker}.tfevents"

    def index(self, global_step: int, worker: str = "worker_0") -> Path:
        return self.folder / f"index/{global_step // 1000:09d}/{global_step:012d}_{worker}.json"

    def _write(self, path: str, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


def framed(record: bytes, checksum: bytes | None = CONSTANT_CHECKSUM) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + masked_crc(length) + record + (masked_crc(record) if checksum is None else checksum)


def masked_crc(data: bytes) -> bytes:
    """Bit by bit, as the polynomial is defined."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def event(name: str, value: Any, mode: str, mode_step: int, global_step: int) -> bytes:
    plugins = b"".join(
        text(1, text(1, key.encode()) + text(2, str(number).encode()))
        for key, number in (("mode_step", mode_step), ("mode", MODES[mode]))
    )
    tensor = value if isinstance(value, bytes) else tensor_proto(value)
    summary = text(1, text(1, name.encode()) + text(8, tensor) + text(9, plugins))
    step = key(2, 0) + varint(global_step) if global_step else b""
    return key(1, 1) + struct.pack("<d", SAVED_AT) + step + text(5, summary)


def tensor_proto(value: Any) -> bytes:
    array = np.asarray(value)
    dims = b"".join(text(2, (key(1, 0) + varint(size) if size else b"") + text(2, b"dim")) for size in array.shape)
    if array.dtype.kind in "US":
        strings = [each if isinstance(each, bytes) else each.encode() for each in array.reshape(-1).tolist()]
        return text(2, dims) + b"".join(text(8, each) for each in strings)
    return key(1, 0) + varint(DTYPES[array.dtype]) + text(2, dims) + text(4, array.tobytes())


def key(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def text(field: int, data: bytes) -> bytes:
    return key(field, 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    data = b""
    while number > 127:
        data += bytes([number & 127 | 128])
        number >>= 7
    return data + bytes([number])
