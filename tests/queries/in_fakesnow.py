"""Answers queries in fakesnow, which emulates Snowflake. Runs in an environment of its own, without tensortrial.

The folder that it is given holds tables as Parquet and `queries.json`; it prints the rows of each query, or the error.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import fakesnow
import pyarrow as pa
import pyarrow.parquet as pq
import snowflake.connector

TYPES = {pa.string(): "text", pa.float64(): "double", pa.timestamp("us", "UTC"): "timestamp_tz"}


def main(folder: Path) -> None:
    warnings.simplefilter("ignore")  # of the DuckDB below it
    with fakesnow.patch(), snowflake.connector.connect(database="RUNS", schema="PUBLIC") as connection:
        cursor = connection.cursor()
        for file in folder.glob("*.parquet"):
            load(cursor, file.stem, pq.read_table(file))
        queries = json.loads((folder / "queries.json").read_text())
        print(json.dumps({name: answer(cursor, text) for name, text in queries.items()}))


def load(cursor: Any, name: str, table: pa.Table) -> None:
    columns = ", ".join(f"{field.name} {type_of(field.type)}" for field in table.schema)
    cursor.execute(f"create table {name} ({columns})")
    places = ", ".join("parse_json(%s)" if pa.types.is_list(field.type) else "%s" for field in table.schema)
    for row in table.to_pylist():
        cursor.execute(f"insert into {name} select {places}", [written(value) for value in row.values()])


def type_of(kind: pa.DataType) -> str:
    return "array" if pa.types.is_list(kind) else TYPES.get(kind, "bigint")


def written(value: Any) -> Any:
    """A value as an INSERT takes it: it has no literals for lists and for numbers that are none."""
    if isinstance(value, list):
        return json.dumps(value)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def answer(cursor: Any, text: str) -> Any:
    try:
        return cursor.execute(text).fetchall()
    except snowflake.connector.errors.ProgrammingError as exc:
        return str(exc)


main(Path(sys.argv[1]))
