"""Every value that numpy can hold, except Python objects, round-trips unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tensortrial
from support.runs import Job
from tensortrial.dtypes import as_scalar, dtype_name, from_rows, parse_dtype, storable, to_bytes
from tensortrial.errors import ConfigurationError, UnsupportedValue

ML_DTYPES = [
    *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    *("int2", "int4", "uint2", "uint4"),
]
ML_DTYPES = [name for name in ML_DTYPES if hasattr(ml_dtypes, name)]

_plain = st.one_of(
    hnp.scalar_dtypes(),
    hnp.byte_string_dtypes(max_len=5),
    st.sampled_from([np.dtype("V3"), np.dtype("m8[25s]"), np.dtype("M8")]),
)
_dtypes = st.one_of(
    _plain,
    hnp.unicode_string_dtypes(max_len=5),
    hnp.array_dtypes(_plain, max_size=3),
    hnp.nested_dtypes(_plain, max_leaves=4),
)
_without_subarray = _dtypes.filter(lambda dtype: dtype.subdtype is None)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Arrays of any dtype, shape and byte order, of random bytes, some of them not contiguous."""
    dtype = draw(_without_subarray)
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    size = int(np.prod(shape)) * dtype.itemsize
    if dtype.kind == "U":
        # Random bytes are no characters.
        array = np.full(shape, draw(st.text("aé☃", max_size=5)), "U5").astype(dtype)
    else:
        data = draw(st.binary(min_size=8, max_size=8)) * (size // 8 + 1)
        array = np.frombuffer(data[:size], dtype).reshape(shape) if size else np.empty(shape, dtype)
    return draw(st.sampled_from([array, array.T, array[::-1] if array.ndim else array, np.asfortranarray(array)]))


def round_trip(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    stored = storable(array)
    data = np.frombuffer(bytearray(to_bytes(stored)), np.uint8)
    (array,) = from_rows(data[None], dtype_name(stored.dtype), stored.shape)
    return array


def canonical(dtype: np.dtype[Any]) -> Any:
    """A dtype without byte order and gaps."""
    if dtype.names is None:
        return dtype.newbyteorder("<")
    fields = [dtype.fields[name][0] for name in dtype.names]  # type: ignore[index]
    return [(name, canonical(field.base), field.shape) for name, field in zip(dtype.names, fields, strict=True)]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(arrays())
def test_any_array_comes_back(array: np.ndarray[Any, Any]) -> None:
    back = round_trip(array)
    assert (back.shape, canonical(back.dtype)) == (array.shape, canonical(array.dtype))
    assert back.tobytes() == array.astype(back.dtype).tobytes()
    assert back.flags.writeable or not back.nbytes


@settings(max_examples=200, deadline=None)
@given(_without_subarray)
def test_the_name_of_a_dtype_is_parsed_back(dtype: np.dtype[Any]) -> None:
    name = dtype_name(storable(np.empty(0, dtype)).dtype)
    assert dtype_name(parse_dtype(name)) == name


@pytest.mark.parametrize("name", ML_DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_the_kinds_of_ml_dtypes_come_back(name: str, shape: tuple[int, ...]) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    array = np.ones(shape, np.float32).astype(dtype)
    back = round_trip(array)
    assert (back.dtype, back.shape, back.tobytes()) == (dtype, shape, array.tobytes())
    assert dtype_name(dtype) == name


def test_fields_are_stored_without_gaps_overlaps_and_titles() -> None:
    aligned = np.zeros(2, np.dtype([("a", "u1"), ("b", "f8")], align=True))
    assert dtype_name(storable(aligned).dtype) == '[["a","uint8"],["b","float64"]]'
    overlapping = np.zeros(2, np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 0]}))
    overlapping["a"] = 70000
    assert round_trip(overlapping).tolist() == [(70000, 70000 % 65536)] * 2
    assert round_trip(np.ones(1, [(("title", "a"), ">f4")])).dtype == np.dtype([("a", "<f4")])
    assert round_trip(np.ones(1, [("x", ml_dtypes.bfloat16)]))["x"].dtype == ml_dtypes.bfloat16
    assert round_trip(np.ones(1, [("x", ">f4", (2, 3))]))["x"].shape == (1, 2, 3)


@pytest.mark.parametrize("value", [np.array([object()]), np.array([{}]), np.zeros(1, [("a", "O")])])
def test_objects_are_refused_with_the_way_out(value: np.ndarray[Any, Any]) -> None:
    with pytest.raises(UnsupportedValue, match="Python objects"):
        dtype_name(value.dtype)
    with pytest.raises(TypeError):
        dtype_name(value.dtype)
    with pytest.raises(ConfigurationError):
        dtype_name(value.dtype)


@pytest.mark.parametrize("name", ["object", "O", "float17", "", "[", '[["a"]]', "[" * 9999, '[["a","O"]]', "f4,f4)"])
def test_an_unknown_dtype_name_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedValue):
        parse_dtype(name)


@pytest.mark.parametrize("number", [0, 1, -1, 2**53, 2**62, -(2**63)])
def test_a_number_that_a_double_holds_is_a_scalar(number: int) -> None:
    assert as_scalar(np.array(number, np.int64)) == number


@pytest.mark.parametrize(
    "array",
    [
        *(np.array(number, np.int64) for number in (2**53 + 1, 2**63 - 1)),
        np.array(2**64 - 1, np.uint64),
        np.array("1e4000", np.longdouble),
        np.array("0.1", np.longdouble),
        np.array(1j),
        np.array("a"),
        np.array(b"a"),
        np.array("2026-01-01", "M8[s]"),
        np.array((1.0,), [("a", "f8")]),
        np.zeros(2),
        np.zeros(0),
    ],
    ids=repr,
)
def test_a_number_that_a_double_cannot_hold_is_not_a_scalar(array: np.ndarray[Any, Any]) -> None:
    assert as_scalar(array) is None


def test_a_scalar_keeps_the_sign_of_zero_and_nan() -> None:
    assert str(as_scalar(np.array(-0.0, np.float32))) == "-0.0"
    assert str(as_scalar(np.array(np.nan, ml_dtypes.bfloat16))) == "nan"


def a_corpus() -> list[np.ndarray[Any, Any]]:
    """One array of each dtype and of each awkward shape."""
    shapes = [(), (1,), (0,), (5,), (2, 0, 3), (2, 3)]
    names = [*"?bBhHiIlLefdgFDG", "U3", "S3", "M8[ns]", "m8[25s]", "V4", ">f4", ">i8", ">U3", ">c16"]
    plain = [
        np.arange(np.prod(shape)).astype(dtype).reshape(shape) for dtype in names if dtype != "V4" for shape in shapes
    ]
    small = [np.ones(shape, getattr(ml_dtypes, name)) for name in ML_DTYPES for shape in shapes]
    fields = [np.ones(shape, [("a", ">f4"), ("b", [("c", "S2"), ("d", "g", (2,))])]) for shape in shapes]
    square = np.arange(12.0).reshape(3, 4)
    views = [square.T, square[::2], square[:, ::-1], np.asfortranarray(square), np.broadcast_to(square, (2, 3, 4))]
    edges = [np.array(number) for number in (2**63 - 1, -(2**63), 2**53 + 1, np.longdouble(1) / 3, np.inf, -0.0)]
    return [*plain, *small, *fields, *views, *edges, np.array([b"a\0b", b""]), np.array(["\0", "☃"])]


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_any_array_comes_back_from_a_run(tmp_path: Path, codec: str) -> None:
    values = a_corpus()
    with Job(tmp_path, codec=codec) as job:
        job.step({str(number): value for number, value in enumerate(values)})
    trial = tensortrial.create_trial(tmp_path)
    for number, value in enumerate(values):
        back = trial.tensor(str(number)).value(0)
        assert (back.shape, canonical(back.dtype)) == (value.shape, canonical(value.dtype))
        assert repr(back.tolist()) == repr(value.tolist())
        assert back.flags.writeable
        assert back.flags.aligned
    trial.close()
