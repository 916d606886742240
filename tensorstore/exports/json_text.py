"""The conversion of lists and structs to JSON text, for targets that have neither."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

_NOT_FINITE = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}
"""Arrow's texts of numbers that JSON lacks, and the JSON texts in their place, which databases cast to numbers."""


def is_nested(kind: pa.DataType) -> bool:
    """Return whether a type is a list or a struct."""
    return bool(pa.types.is_list(kind) or pa.types.is_struct(kind))


def as_json(column: pa.Array) -> pa.Array:
    """Return structs, or lists of texts or numbers, as JSON text; null stays null.

    Numbers that are not finite become the texts "NaN", "Infinity" and "-Infinity".
    The conversion is by column. Cell by cell, it would take a hundred times as long.
    """
    if column.null_count == len(column):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_struct(column.type):
        fields = [_concat(f'"{field.name}": ', as_json(pc.struct_field(column, field.name))) for field in column.type]
        return _concat("{", pc.binary_join_element_wise(*fields, ", "), "}")
    return _concat("[", pc.binary_join(_cells(column), ", "), "]")


def _cells(lists: pa.ListArray) -> pa.ListArray:
    """Return the lists with each value as JSON text."""
    values = lists.flatten()
    spelled = _spelled_texts(values) if pa.types.is_string(values.type) else _spelled_numbers(values)
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths.cast(pa.int64()))])
    spelled_lists = pa.ListArray.from_arrays(offsets.cast(pa.int32()), spelled)
    return pc.if_else(lists.is_valid(), spelled_lists, pa.scalar(None, spelled_lists.type))


def _spelled_texts(values: pa.Array) -> pa.Array:
    values = values.dictionary_encode()
    spelled = pa.array([json.dumps(text, ensure_ascii=False) for text in values.dictionary.to_pylist()], pa.string())
    return spelled.take(values.indices)


def _spelled_numbers(values: pa.Array) -> pa.Array:
    spelled = values.cast(pa.string())
    if pa.types.is_floating(values.type) and not pc.all(pc.is_finite(values)).as_py():
        for found, word in _NOT_FINITE.items():
            spelled = pc.if_else(pc.equal(spelled, found), word, spelled)
    return spelled


def _concat(*texts: str | pa.Array) -> pa.Array:
    """Concatenate texts row by row; null if one of them is null."""
    return pc.binary_join_element_wise(*texts, "")
