"""The raw value of a tensor at a step: a slice of two dimensions, a mosaic of all slices, an image, a file of numpy."""

from __future__ import annotations

import base64
import io
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import IMAGE_CHANNELS, Array, channels_last, to_numpys_own
from ..errors import UnavailableError
from ..mode import ModeKeys
from .one_tensor import raw
from .open_run import OpenRun
from .payload import number, numbers

# The most elements of a side of a picture, of a slice, and of a mosaic.
_LONGEST_SIDE, _MOST_ELEMENTS, _MOST_OF_MOSAIC = 1024, 20_000, 40_000
_COLOR_TYPES = dict(zip(IMAGE_CHANNELS, (0, 2, 6), strict=True))
"""The colors of an image by its number of channels, as a PNG names them."""


@dataclass(frozen=True)
class _Picture:
    """The visible elements, as rows and columns."""

    elements: Array
    gaps: Array
    """True between two tiles of a mosaic."""
    chosen: str
    """The slice in the notation of numpy, such as "0, 3, :, :"; "" for a mosaic and for two dimensions."""
    tiles: dict[str, int] | None = None
    """The number of tiles in a row of a mosaic and in all, and that of the slices of the tensor."""


def value(run: OpenRun, name: str, mode: str, worker: str, step: int, chosen: str) -> dict[str, Any] | None:
    """Return a raw value as a picture, as docs/page.md describes; None if it was not saved.

    `worker` is "" for the first one that has the value. `chosen` is a slice of two dimensions, as numpy writes it: "0,
    3, :, :"; "" is a mosaic of all slices. A block is shown by its element of the largest magnitude, or NaN if one is
    not finite.
    """
    try:
        whole = raw(run, name, mode, worker, step)
    except UnavailableError:
        return None
    if whole is None:
        return None
    row = run.reader.row(name, step, ModeKeys.parse(mode), worker or None)
    picture = _picture(whole, chosen)
    strides = (1, 1) if picture.tiles else _strides(picture.elements.shape)
    shown, gaps = _reduced(picture.elements, strides), picture.gaps
    values = numbers(shown.ravel().tolist())
    return {
        "shape": list(whole.shape),
        "dtype": row.dtype,
        "total": int(whole.size),
        "rows": shown.shape[0],
        "columns": shown.shape[1],
        "values": [None if gap else each for each, gap in zip(values, gaps.flat, strict=True)] if gaps.size else values,
        "slice": picture.chosen,
        "tiles": picture.tiles,
        "strides": list(strides),
        "extremes": _extremes(whole),
        "image": _image(whole) if row.dtype == "uint8" else None,
    }


def npy(run: OpenRun, name: str, mode: str, worker: str, step: int) -> bytes:
    """Return a raw value as a file of numpy; dtypes that numpy lacks, such as bfloat16, as float32.

    Raises:
        TensorUnavailableForStep: No raw value was saved at the step.
    """
    found = run.trial.tensor(name).value(step, ModeKeys.parse(mode), worker or None)
    file = io.BytesIO()
    np.save(file, to_numpys_own(found), allow_pickle=False)
    return file.getvalue()


def _picture(whole: Array, chosen: str) -> _Picture:
    none = np.zeros(0, bool)
    if not whole.size:
        return _Picture(np.zeros((0, 0)), none, "")
    if whole.ndim < 2:
        return _Picture(whole.reshape(1, -1), none, "")
    index = _index(chosen, whole.shape)
    if index is None and whole.ndim > 2 and (mosaic := _mosaic(whole)) is not None:
        return mosaic
    index = index or (*(0,) * (whole.ndim - 2), slice(None), slice(None))
    text = ", ".join(":" if isinstance(at, slice) else str(at) for at in index)
    return _Picture(whole[index], none, text if whole.ndim > 2 else "")


def _index(text: str, shape: Sequence[int]) -> tuple[int | slice, ...] | None:
    """Return the index in a text; None unless it selects a slice of two dimensions of this shape."""
    parts = [part.strip() for part in text.split(",")]
    try:
        index = [slice(None) if part == ":" else int(part) for part in parts]
    except ValueError:
        return None
    inside = all(isinstance(at, slice) or -size <= at < size for at, size in zip(index, shape, strict=False))
    return tuple(index) if len(index) == len(shape) and parts.count(":") == 2 and inside else None


def _mosaic(whole: Array) -> _Picture | None:
    """Return all slices of the last two dimensions next to each other; None if there is no room for two."""
    height, width = whole.shape[-2:]
    slices = whole.reshape(-1, height, width)
    shown = slices[: _MOST_OF_MOSAIC // ((height + 1) * (width + 1))]
    if len(shown) < 2:
        return None
    across = max(1, min(len(shown), round(math.sqrt(1.6 * len(shown) * height / width))))
    if whole.ndim > 3 and whole.shape[-3] <= 2 * across:
        across = whole.shape[-3] * max(1, across // whole.shape[-3])  # the channels of a filter are in one row
    down = -(-len(shown) // across)
    padding = ((0, down * across - len(shown)), (0, 1), (0, 1))

    def arranged(tiles: Array, gap: float) -> Array:
        padded = np.pad(tiles, padding, constant_values=gap).reshape(down, across, height + 1, width + 1)
        return padded.swapaxes(1, 2).reshape(down * (height + 1), across * (width + 1))[:-1, :-1]

    gaps = arranged(np.zeros(shown.shape, bool), True)
    return _Picture(arranged(shown, 0), gaps, "", {"across": across, "shown": len(shown), "of": len(slices)})


def _strides(shape: Sequence[int]) -> tuple[int, int]:
    rows, columns = shape
    across = _stride(columns, min(_LONGEST_SIDE, max(1, _MOST_ELEMENTS // min(rows or 1, 140))))
    return _stride(rows, min(_LONGEST_SIDE, max(1, _MOST_ELEMENTS // max(-(-columns // across), 1)))), across


def _stride(length: int, most: int) -> int:
    return max(1, -(-length // most))


def _reduced(elements: Array, strides: tuple[int, int]) -> Array:
    if strides == (1, 1) or not elements.size:
        return elements
    row_stride, column_stride = strides
    padded = np.pad(elements, ((0, -elements.shape[0] % row_stride), (0, -elements.shape[1] % column_stride)))
    grouped = padded.reshape(padded.shape[0] // row_stride, row_stride, -1, column_stride).swapaxes(1, 2)
    blocks = grouped.reshape(*grouped.shape[:2], -1)
    # argmax of NaN is the first NaN; infinities are larger than all finite numbers.
    return np.take_along_axis(blocks, np.abs(blocks).argmax(axis=2)[..., None], axis=2)[..., 0]


def _extremes(whole: Array) -> dict[str, Any]:
    finite = np.isfinite(whole)
    bad = np.flatnonzero(~finite.ravel())
    return {
        "min": _extreme(np.where(finite, whole, np.inf), np.argmin) if finite.any() else None,
        "max": _extreme(np.where(finite, whole, -np.inf), np.argmax) if finite.any() else None,
        "nan": [int(i) for i in np.unravel_index(bad[0], whole.shape)] if len(bad) else None,
        "nanCount": len(bad),
    }


def _extreme(values: Array, find: Any) -> dict[str, Any]:
    at = np.unravel_index(find(values), values.shape)
    return {"value": number(float(values[at])), "index": [int(i) for i in at]}


def _image(whole: Array) -> str | None:
    """Return an array of three dimensions, the last or the first being colors, as the data: URL of a PNG."""
    pixels = channels_last(whole)
    if pixels is None:
        return None
    stride = _stride(max(pixels.shape[:2]), _LONGEST_SIDE)
    pixels = pixels[::stride, ::stride].astype(np.uint8)
    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOR_TYPES[channels], 0, 0, 0)
    lines = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # a row begins with its filter, 0: none
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
