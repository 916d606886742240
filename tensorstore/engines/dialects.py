"""The translation of this project's SQL into the dialects of other engines, by sqlglot."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from ..errors import ConfigurationError, QueryError, importing

Value = str | int | float | bool


def translate(sql: str, dialect: str, values: Mapping[str, Value] | None = None) -> str:
    """Return a SELECT in DuckDB's SQL, translated into another dialect.

    Args:
        sql: The SELECT.
        dialect: A dialect of sqlglot, such as "postgres".
        values: Values that replace the parameters `$name`.

    Raises:
        ConfigurationError: sqlglot does not know the dialect.
        QueryError: The dialect cannot express the query.
        MissingExtra: sqlglot is not installed.
    """
    with importing("sqlglot", "warehouse", "SQL for other engines"):
        import sqlglot
        from sqlglot import exp
        from sqlglot.dialects.dialect import Dialects

    known = sorted(each.value for each in Dialects if each.value)
    if dialect not in known:
        near = difflib.get_close_matches(str(dialect), known, 3, 0.7) or known
        raise ConfigurationError(f"unknown SQL dialect {dialect!r}; known dialects: {', '.join(near)}")
    tree = sqlglot.parse_one(sql, read="duckdb")
    for parameter in list(tree.find_all(exp.Parameter, exp.Placeholder)):
        if values is not None and parameter.name in values:
            parameter.replace(exp.convert(values[parameter.name]))
    if dialect == "snowflake":
        # Snowflake reads names without quotes as upper-case, like those of its tables, and a quoted "min" as another
        # name.
        for name in tree.find_all(exp.Identifier):
            name.set("quoted", False)
    try:
        return tree.sql(dialect, pretty=True, comments=False, unsupported_level=sqlglot.ErrorLevel.RAISE)
    except sqlglot.UnsupportedError as exc:
        raise QueryError(f"the SQL of {dialect} cannot express this query: {exc}") from exc
