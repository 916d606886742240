"""SQL of this project in the dialects of other engines, by sqlglot."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from ..errors import ConfigurationError, MissingExtra, QueryError

Value = str | int | float | bool


def translate(sql: str, dialect: str, values: Mapping[str, Value] | None = None) -> str:
    """A SELECT of DuckDB's dialect in another one, with `values` in the place of the parameters `$name`.

    Raises ConfigurationError for a dialect that sqlglot does not know, QueryError for SQL that the dialect has no words
    for, MissingExtra without sqlglot.
    """
    try:
        import sqlglot
        from sqlglot import exp
        from sqlglot.dialects.dialect import Dialects
    except ImportError as exc:
        raise MissingExtra("sqlglot", "warehouse", "SQL for other engines") from exc

    known = sorted(each.value for each in Dialects if each.value)
    if dialect not in known:
        near = difflib.get_close_matches(dialect, known, 3, 0.7) or known
        raise ConfigurationError(f"no dialect {dialect!r} of SQL is known; there is {', '.join(near)}")
    tree = sqlglot.parse_one(sql, read="duckdb")
    for parameter in list(tree.find_all(exp.Parameter, exp.Placeholder)):
        if values is not None and parameter.name in values:
            parameter.replace(exp.convert(values[parameter.name]))
    if dialect == "snowflake":
        # It takes a name without quotes for one in capitals, as tables have them, and "min" for another.
        for name in tree.find_all(exp.Identifier):
            name.set("quoted", False)
    try:
        return tree.sql(dialect, pretty=True, comments=False, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.UnsupportedError as exc:
        raise QueryError(f"this cannot be said in the SQL of {dialect}: {exc}") from exc
