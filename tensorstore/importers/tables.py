"""Tables of metrics, in CSV or Parquet: finding them, reading them, and turning their columns into points."""

from __future__ import annotations

import operator
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from ..errors import ConfigurationError, CorruptFile, RunNotFound
from ..format.arrow_arrays import numbers as column_of
from ..format.arrow_arrays import numpy_of
from ..storage.open import Storage
from ..visible import quoted
from .histograms import drawn_of, holds_histograms
from .metrics import ROUNDED, Drawn, Integers, Points, Report
from .numbers import STEPS_END
from .sources import find_files
from .times import EARLIEST, LATEST

_KINDS = (".csv", ".parquet")

_NUMBER = r"^([+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|[+-]?inf|[+-]?infinity)$"
_QUOTED = re.compile(r'"[^"]*"')
# A cell with a number that has a decimal comma or a decimal point, where semicolons separate the cells.
_WITH_COMMA, _WITH_POINT = (
    re.compile(rb'(?im)(^|;) *"?[+-]?\d*' + sign + rb'\d+(e[+-]?\d+)?"? *(;|\r?$)') for sign in (b",", rb"\.")
)


def find_tables(
    source: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, others: str = ""
) -> tuple[Storage, list[str], str]:
    """Return the folder that is or contains `source`, its tables by name, and the URL of `source`.

    Raises:
        RunNotFound: It has none. The message also names `others`, the endings of the files that the caller missed.
    """
    storage, found, url = find_files(source, storage_options, is_table, depth=4)
    if not found:
        text = os.fspath(source).rstrip("/")
        raise RunNotFound(text, f"there is no file here that ends with {others}{' or '.join(_KINDS)}")
    return storage, found, url


def is_table(name: str) -> bool:
    """Return whether a file of this name is a table."""
    return name.lower().endswith(_KINDS)


def read_table(storage: Storage, path: str, report: Report) -> pa.Table:
    """Return a table. Raises CorruptFile for a file that is neither CSV with a header nor Parquet."""
    data, url = storage.read(path), f"{storage.url}/{path}"
    if not path.lower().endswith(".parquet"):
        return csv_of(data, url, report)
    try:
        return _checked(pq.ParquetFile(pa.BufferReader(data)).read(), url)
    except (pa.ArrowException, OSError) as exc:
        raise CorruptFile(url, f"this is not a table of metrics: {exc}") from exc


def csv_of(data: bytes, url: str, report: Report) -> pa.Table:
    """Return the table in a CSV file. Raises CorruptFile, which names `url`, if it is not a table of metrics.

    An incomplete last line is left out and reported.
    """
    try:
        return _checked(_read_csv(data, url), url)
    except (pa.ArrowException, OSError) as exc:
        whole, newline, rest = data.rpartition(b"\n")
        if newline and rest.strip():
            report(f"{url}: its last line, which is not written to its end")
            return csv_of(whole + newline, url, report)
        raise CorruptFile(url, f"this is not a table of metrics: {exc}") from exc


def _checked(table: pa.Table, url: str) -> pa.Table:
    table = table.rename_columns([name.strip() for name in table.column_names])
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise CorruptFile(url, f"it has several columns of the name {twice[0]!r}")
    # The unnamed first column that pandas writes is its index.
    return table.drop_columns([name for name in ("", "Unnamed: 0", "__index_level_0__") if name in table.column_names])


def _read_csv(data: bytes, url: str) -> pa.Table:
    try:
        head = data.partition(b"\n")[0].decode()
    except UnicodeDecodeError:
        head = "\0"
    if "\0" in head:
        raise CorruptFile(url, "this is not text in UTF-8: save it as CSV in UTF-8")
    unquoted = _QUOTED.sub("", head)
    delimiter = next((sign for sign in ",;\t" if sign in unquoted), ",")
    # An empty cell is not a number, and `nan` is one. If another character separates the cells, numbers may have
    # decimal commas.
    has_commas = delimiter == ";" and _WITH_COMMA.search(data) and not _WITH_POINT.search(data)
    point = "," if has_commas else "."
    convert = pyarrow.csv.ConvertOptions(null_values=[""], strings_can_be_null=True, decimal_point=point)
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter)
    table = pyarrow.csv.read_csv(pa.BufferReader(data), parse_options=parse, convert_options=convert)
    names = table.column_names
    for position, (name, column) in enumerate(zip(names, table.columns, strict=True)):
        if pa.types.is_floating(column.type) and (pc.max(pc.abs(column)).as_py() or 0) >= 2**63:
            # Arrow takes whole numbers beyond int64 for doubles.
            convert.include_columns, convert.column_types = [name], {name: pa.decimal128(38)}
            with suppress(pa.ArrowInvalid):  # some are doubles, or have more digits
                whole = pyarrow.csv.read_csv(pa.BufferReader(data), parse_options=parse, convert_options=convert)
                table = table.set_column(position, name, whole[name])
    # pandas names unnamed columns by their numbers.
    if all(map(_is_number, names)) and names != [str(number) for number in range(len(names))]:
        raise CorruptFile(url, f"its first line must name the columns, and holds the numbers {', '.join(names[:3])}")
    return table


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def column_like(table: pa.Table, names: Sequence[str]) -> str | None:
    """Return the first column that has one of the names, ignoring case."""
    known = {column.lower(): column for column in reversed(table.column_names)}
    return next((known[name] for name in names if name in known), None)


def points_of_columns(
    table: pa.Table, names: Mapping[str, str], step: Integers, saved_at: Integers, path: str, report: Report
) -> Points:
    """Return the points of a table with a column for each name.

    A cell without a number is no point. A column may hold histograms; columns with neither are reported. `names` are
    the names in the run, by column. A `step` below 0 is that of a row without a step, which is reported. `saved_at` is
    in nanoseconds since 1970; 0 if unknown. `path` is the table's URL, for messages.
    """
    metrics, rows, values, others = list[str](), [], [], list[str]()
    histograms: list[Drawn] = []
    for column, name in names.items():
        if holds_histograms(table[column]):
            histograms += drawn_of(table[column], [name] * len(table), step, saved_at)
            continue
        numbers = _reported_numbers(table[column], column, path, report)
        if numbers is None:
            others.append(column)
            continue
        present = _valid(numbers)
        present = present[step[present] >= 0]
        metrics.append(name)
        rows.append(present)
        values.append(numpy_of(numbers)[present])
    if others:
        report(f"{path}: columns that hold no numbers: {quoted(others)}")
    if missing := int(np.count_nonzero(step < 0)):
        report(f"{path}: {missing} rows without a step")
    row = np.concatenate([np.empty(0, np.int64), *rows])
    return Points(
        metrics,
        np.repeat(np.arange(len(metrics)), [len(present) for present in rows]),
        step[row],
        np.concatenate([np.empty(0, np.float64), *values]),
        saved_at[row],
        histograms=histograms,
    )


def points_of_rows(
    names: pa.ChunkedArray, values: pa.ChunkedArray, step: Integers, saved_at: Integers, path: str, report: Report
) -> Points:
    """Return the points of a table with one point in each row: `names` has their names, `values` their numbers."""
    numbers = _reported_numbers(values, "values", path, report)
    if numbers is None:
        raise CorruptFile(path, f"its column of values holds {values.type} instead of numbers")
    coded = pc.utf8_trim_whitespace(names.cast(pa.string())).combine_chunks().dictionary_encode()
    row = np.intersect1d(_valid(coded), _valid(numbers), assume_unique=True)
    row = row[step[row] >= 0]
    if missing := len(step) - len(row):
        report(f"{path}: {missing} rows without a name, a step or a number")
    return Points(
        coded.dictionary.to_pylist(),
        numpy_of(coded.indices)[row].astype(np.int64),
        step[row],
        numpy_of(numbers)[row],
        saved_at[row],
    )


def _valid(column: pa.Array) -> Integers:
    """Return the rows of a column that are not null."""
    return numpy_of(pc.indices_nonzero(pc.is_valid(column))).astype(np.int64)


def _reported_numbers(column: pa.ChunkedArray, name: str, path: str, report: Report) -> pa.Array | None:
    """Return the column as float64, or None if it holds no numbers. Cells that are not numeric are reported."""
    if not pa.types.is_string(column.type):
        numbers = _numbers(column)
        is_whole = pa.types.is_integer(column.type) or pa.types.is_decimal(column.type)
        if is_whole and (rounded := _rounded(column.combine_chunks(), numbers)):
            report(f"{path}: {ROUNDED.format(rounded, repr(name))}")
        return numbers
    texts = pc.utf8_trim_whitespace(column.combine_chunks())
    is_number = pc.match_substring_regex(texts, _NUMBER, ignore_case=True)
    others = texts.filter(pc.invert(is_number))
    if 2 * len(others) >= len(texts) - texts.null_count:
        return None
    if len(others):
        report(f"{path}: {len(others)} cells of {name!r} that hold no number, such as {others[0].as_py()!r}")
    known = pc.if_else(is_number, texts, pa.nulls(len(texts), texts.type))
    return pc.replace_substring_regex(known, r"^\+", "").cast(pa.float64())


def _rounded(whole: pa.Array, numbers: pa.Array) -> int:
    """Return the number of whole numbers that a double does not represent."""
    large = column_of(np.flatnonzero(np.abs(numpy_of(numbers)) >= 2**53), pa.int64())
    # Python compares exactly. Arrow and numpy would convert the whole numbers to doubles.
    return sum(map(operator.ne, whole.take(large).to_pylist(), numbers.take(large).to_pylist()))


def _numbers(column: pa.ChunkedArray) -> pa.Array | None:
    """Return the column as float64; None if it does not hold numbers."""
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.string())  # Arrow rounds the double of a decimal twice
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    return column.combine_chunks().cast(pa.float64(), safe=False)


def steps_of(column: pa.ChunkedArray, path: str, multiplier: int = 1) -> Integers:
    """Return the steps of a column, multiplied; -1 where a cell is empty. Raises CorruptFile for an invalid step."""
    if not isinstance(multiplier, Integral) or multiplier < 1:
        raise ConfigurationError(f"step_multiplier must be a whole number of at least 1, got {multiplier!r}")
    numbers = _numbers(column)
    if numbers is None:
        if column.null_count == len(column):
            return np.full(len(column), -1)
        raise CorruptFile(path, f"its column of steps holds {column.type} instead of numbers: name another column")
    steps = numpy_of(numbers, missing=np.nan) * multiplier
    known = np.isfinite(steps)
    rounded = np.where(known, np.round(steps), -1)
    bad = known & ((np.abs(rounded - steps) > 1e-6) | (rounded < 0) | (rounded >= STEPS_END))
    if bad.any():
        first = steps[np.argmax(bad)]
        hint = "" if first < 0 or first >= STEPS_END else ": choose a step_multiplier that makes it one"
        raise CorruptFile(path, f"{first / multiplier:g} is no step, which is a whole number from 0 to 1e12{hint}")
    return rounded.astype(np.int64)


def holds_times(column: pa.ChunkedArray) -> bool:
    """Return whether a column can be read as times."""
    kind = column.type
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind)) or _numbers(column) is not None


def times_of(column: pa.ChunkedArray | None, length: int) -> Integers:
    """Return a column of times in nanoseconds since 1970; 0 if unknown, before 1973 or after 2200.

    It holds timestamps, or seconds, milliseconds, microseconds or nanoseconds since 1970; None if there is none.
    """
    if column is None:
        return np.zeros(length, np.int64)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        microseconds = numpy_of(column.combine_chunks().cast(pa.timestamp("us"), safe=False))
    elif (numbers := _numbers(column)) is None:
        return np.zeros(length, np.int64)
    else:
        seconds = np.nan_to_num(numpy_of(numbers), posinf=0, neginf=0)
        for _ in range(3):
            # A time in the year 5000 must be a number in a smaller unit.
            seconds = np.where(seconds > 1e11, seconds / 1000, seconds)
        microseconds = np.asarray(np.where(seconds < LATEST, seconds, 0).clip(0) * 1e6, np.int64)
    is_known = (microseconds >= EARLIEST * 1e6) & (microseconds < LATEST * 1e6)
    return np.where(is_known, microseconds * 1000, 0)
