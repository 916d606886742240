"""The translation of SQL into Spark's, and the check of users' queries, by sqlglot."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from ..errors import QueryError, QueryRefused, importing
from .base import UserQuery

with importing("sqlglot", "spark", "SparkEngine"):
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

# They call any static Java method, or take names from text, which cannot be checked.
_FORBIDDEN = frozenset({"java_method", "reflect", "try_reflect", "identifier"})

# Statements that the parser allows inside a query, and that it classes neither as DDL nor as DML.
_STATEMENTS = frozenset(
    [
        "alter",
        "altertable",
        "analyze",
        "attach",
        "cache",
        "comment",
        "commit",
        "copy",
        "declare",
        "describe",
        "detach",
        "drop",
        "execute",
        "export",
        "grant",
        "install",
        "kill",
        "loaddata",
        "merge",
        "pragma",
        "refresh",
        "revoke",
        "rollback",
        "set",
        "show",
        "summarize",
        "transaction",
        "truncatetable",
        "uncache",
        "use",
    ]
)


@cache
def translated(text: str) -> str:
    """Return the SELECT of a file of `queries/` in Spark's SQL."""
    (statement,) = sqlglot.parse(text, read="duckdb")
    return _for_spark(statement)


def select(query: str, views: Collection[str], dialect: str) -> UserQuery:
    """Return a user's query in Spark's SQL, with the views that it reads.

    Args:
        query: One SELECT.
        views: The names of the public views.
        dialect: The SQL that the query is written in, such as "duckdb" or "spark".

    Raises:
        QueryRefused: It is anything but one SELECT on these views: it reads other tables or files, or calls functions
            that return tables or call Java.
        QueryError: It is not SQL.
    """
    try:
        statements = [each for each in sqlglot.parse(query, read=dialect) if each is not None]
    except SqlglotError as exc:
        raise QueryError(f"this is not SQL of the dialect {dialect}: {exc}") from exc
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        found = ", ".join(each.key.upper() for each in statements) or "nothing"
        raise QueryRefused(f"only one SELECT is run on a run's views, and this is {found}: {query.strip()[:200]!r}")
    (statement,) = statements
    read = frozenset().union(*(_check(node, views) for node in statement.walk()))
    return UserQuery(_for_spark(statement), read)


def _check(node: Any, views: Collection[str]) -> Collection[str]:
    """Return the views that a node itself reads, without those of its children. Raises QueryRefused."""
    if isinstance(node, exp.Table):
        return _check_table(node, views)
    if isinstance(node, exp.Anonymous) and node.name.lower() in _FORBIDDEN:
        raise QueryRefused(f"the function {node.name} is not run: it reaches beyond the views of the run")
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
        raise QueryRefused(f"a query can call Spark's own functions only, and this is another: {node.sql()}")
    if _is_statement(node):
        raise QueryRefused(f"a query can read the views of its run, and nothing else: {node.sql()[:200]!r}")
    return ()


def _is_statement(node: Any) -> bool:
    if isinstance(node, exp.CTE):
        return not isinstance(node.this, exp.Query)
    kinds = (exp.Command, exp.DDL, exp.DML, exp.Into, exp.QueryTransform)
    return node.key in _STATEMENTS or (isinstance(node, kinds) and not isinstance(node, exp.Query))


def _check_table(table: Any, views: Collection[str]) -> Collection[str]:
    if not isinstance(table.this, exp.Identifier):
        raise QueryRefused(f"a query cannot use a function as a table: {table.sql()[:200]!r}")
    name, qualified = table.name.lower(), bool(table.db or table.catalog)
    if not qualified and name in _with_names(table):
        return ()
    if qualified or name not in {view.lower() for view in views}:
        raise QueryRefused(f"no view {table.sql()!r}: a query can read {', '.join(sorted(views))}, and nothing else")
    return (name,)


def _with_names(node: Any) -> set[str]:
    """Return the names that the enclosing WITH clauses define before this node. Other names belong to tables."""
    names: set[str] = set()
    inside = None
    while node is not None:
        clause = node.args.get("with_")
        for each in clause.expressions if clause else ():
            if each is inside and not clause.args.get("recursive"):
                break
            names.add(each.alias.lower())
            if each is inside:
                break
        if isinstance(node, exp.CTE):
            inside = node
        node = node.parent
    return names


def _for_spark(statement: Any) -> str:
    """Return the text for Spark: small tables are views without a schema, and times are UTC."""

    def changed(node: Any) -> Any:
        if isinstance(node, exp.Table) and node.db == "catalogue":
            # The table is changed in place, because UNPIVOT is a part of it.
            node.set("alias", exp.TableAlias(this=exp.to_identifier(node.alias or node.name)))
            node.set("db", None)
            node.set("this", exp.to_identifier(f"catalogue_{node.name}"))
        if isinstance(node, exp.Anonymous) and node.name.lower() == "epoch_us":
            (time,) = node.expressions
            return exp.func("unix_micros", exp.cast(time, "timestamptz"))
        if isinstance(node, exp.IsInf) or (isinstance(node, exp.Anonymous) and node.name.lower() == "isfinite"):
            return _compared_with_infinity(node)
        return node

    try:
        # Comments are left out, because Spark reads hints from them.
        text: str = statement.transform(changed).sql(
            "spark", comments=False, unsupported_level=sqlglot.ErrorLevel.RAISE
        )
    except SqlglotError as exc:
        raise QueryError(f"Spark's SQL cannot express this query: {exc}") from exc
    return text


def _compared_with_infinity(node: Any) -> Any:
    """Return DuckDB's isinf or isfinite in functions that Spark has."""
    is_inf = isinstance(node, exp.IsInf)
    number = node.this if is_inf else node.expressions[0]
    infinity = exp.cast(exp.Literal.string("Infinity"), "double")
    return (exp.EQ if is_inf else exp.LT)(this=exp.func("abs", number), expression=infinity)
