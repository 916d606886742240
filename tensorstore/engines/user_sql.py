"""The check of users' queries on the tree of DuckDB's own parser: only one SELECT on the views of a run is allowed.

The type of the statement is not enough, because DuckDB also calls a statement SELECT that writes in a common table
expression. `json_serialize_sql` returns the parsed tree. Unknown nodes are refused, so that a later release of DuckDB
allows queries nothing new.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator
from typing import Any

from ..errors import QueryError, QueryRefused

# Kinds of nodes without a class in the tree: queries, tables and their modifiers.
_QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"})
_TABLES = frozenset(
    {"BASE_TABLE", "TABLE_FUNCTION", "SUBQUERY", "JOIN", "EMPTY", "EMPTY_FROM", "EXPRESSION_LIST", "PIVOT", "SHOW_REF"}
)
_MODIFIERS = frozenset({"ORDER_MODIFIER", "LIMIT_MODIFIER", "LIMIT_PERCENT_MODIFIER", "DISTINCT_MODIFIER"})
_ORDERS = frozenset({"ORDER_DEFAULT", "ASCENDING", "DESCENDING"})
_KNOWN = _QUERIES | _TABLES | _MODIFIERS | _ORDERS
_EXPRESSIONS = frozenset(
    [
        "BETWEEN",
        "CASE",
        "CAST",
        "COLLATE",
        "COLUMN_REF",
        "COMPARISON",
        "CONJUNCTION",
        "CONSTANT",
        "DEFAULT",
        "FUNCTION",
        "LAMBDA",
        "LAMBDA_REF",
        "OPERATOR",
        "PARAMETER",
        "POSITIONAL_REFERENCE",
        "STAR",
        "SUBQUERY",
        "TYPE",
        "WINDOW",
    ]
)

_TABLE_FUNCTIONS = frozenset({"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"})
# Functions that show or change the engine and its session, or wait. No row of a run depends on them.
_FUNCTIONS = frozenset(
    [
        "current_connection_id",
        "current_query",
        "current_query_id",
        "current_schemas",
        "current_setting",
        "current_transaction_id",
        "currval",
        "get_block_size",
        "getenv",
        "getvariable",
        "in_search_path",
        "nextval",
        "set_config",
        "setval",
        "sleep",
        "sleep_ms",
        "stats",
        "txid_current",
        "vector_type",
        "write_log",
        "json_execute_serialized_sql",
        "query",
        "query_table",
        "which_secret",
    ]
)
_FUNCTION_PREFIXES = ("__", "duckdb_", "pg_get_", "pg_sleep", "pragma_", "read_")
_SCHEMAS = ((), ("main",), ("memory", "main"))

Tree = dict[str, Any]


def check(serialized: str, query: str, views: Collection[str]) -> frozenset[str]:
    """Refuse everything but one SELECT on these views, and return the views that it reads.

    Args:
        serialized: What DuckDB's `json_serialize_sql` returns for the query.
        query: Its text, for messages.
        views: The names of the public views, in lower case.

    Returns:
        The views that the query reads; all views for a query that lists them.

    Raises:
        QueryRefused: It is not one SELECT, or reads anything but the views.
        QueryError: It is not SQL, or reads a view that does not exist.
    """
    try:
        document = json.loads(serialized)
    except RecursionError as exc:
        raise QueryError("the query is nested too deeply; write it with fewer parentheses and operators") from exc
    if document["error"]:
        raise _not_a_select(document, query)
    statements = document["statements"]
    if len(statements) != 1:
        raise QueryRefused(f"only one SELECT is run on a run's views, and this is {len(statements)}: {_short(query)}")
    return frozenset().union(*(_check_node(tree, names, views) for tree, names in _walk(statements[0])))


def _not_a_select(document: Tree, query: str) -> QueryError:
    message = document.get("error_message", "")
    if "Only SELECT" in message:
        return QueryRefused(f"only one SELECT is run on a run's views, and this is another statement: {_short(query)}")
    return QueryError(f"this is not SQL that DuckDB understands: {message}")


def _walk(statement: Tree) -> Iterator[tuple[Tree, frozenset[str]]]:
    """Yield every node, with the names that the WITH clauses around it define. A loop, because a tree may be deep."""
    waiting: list[tuple[Any, frozenset[str]]] = [(statement, frozenset())]
    while waiting:
        found, names = waiting.pop()
        if isinstance(found, list):
            waiting += [(each, names) for each in found]
        elif isinstance(found, dict):
            yield found, names
            waiting += _below(found, names)


def _below(node: Tree, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Yield the children of a node, with the names that they see."""
    known = names
    # A common table expression sees the previous ones, but not itself.
    for entry in (node.get("cte_map") or {}).get("map", ()):
        yield entry["value"], known
        known |= {str(entry["key"]).lower()}
    own = {str(node.get("cte_name", "")).lower()}
    # The first part of a recursive one does not see it either: there its name belongs to another table.
    seeing = {"RECURSIVE_CTE_NODE": "right", "CTE_NODE": "child"}.get(str(node.get("type")))
    for key, child in node.items():
        if key != "cte_map":
            yield child, known | own if key == seeing else known


def _check_node(node: Tree, names: frozenset[str], views: Collection[str]) -> Collection[str]:
    """Return the views that a node itself reads, without those of its children. Raises QueryRefused and QueryError."""
    kind, of_class = node.get("type"), node.get("class")
    if of_class is not None:
        if of_class not in _EXPRESSIONS:
            raise QueryRefused(f"a query on a run's views can have no {_spoken(of_class)}")
    elif isinstance(kind, str) and kind not in _KNOWN and not kind.endswith("_TYPE_INFO"):
        raise QueryRefused(f"a query can read the views of its run, and nothing else; this has a {_spoken(kind)}")
    if kind == "BASE_TABLE":
        return _check_table(node, names, views)
    if kind == "TABLE_FUNCTION":
        _check_table_function(node)
    elif kind == "SHOW_REF":
        return _check_show(node, views)
    elif "function_name" in node:
        _check_function(str(node["function_name"]))
    return ()


def _check_table(node: Tree, names: frozenset[str], views: Collection[str]) -> Collection[str]:
    path = _path(node)
    *schema, name = path
    if name in names and schema in ([], ["recurring"]):
        return ()
    # DuckDB treats an unknown table as the path of a file. No view has such a name.
    if tuple(schema) not in _SCHEMAS or not name.isidentifier():
        raise QueryRefused(f"no view {'.'.join(path)!r}: a query can read {_listed(views)}, and nothing else")
    if name not in views:
        near = difflib.get_close_matches(name, sorted(views), 1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise QueryError(f"no view {name!r}{hint} A query can read {_listed(views)}")
    return (name,)


def _path(node: Tree) -> list[str]:
    """Return the parts of a table's name: catalogue and schema, if given, and the name."""
    named = node.get("qualified_name") or {}
    path = named.get("path") or [node.get("catalog_name"), node.get("schema_name"), node["table_name"]]
    return [str(part).lower() for part in path if part]


def _check_table_function(node: Tree) -> None:
    function = node.get("function") or {}
    name = str(function.get("function_name", "")).lower()
    if function.get("class") != "FUNCTION" or name not in _TABLE_FUNCTIONS:
        allowed = ", ".join(sorted(_TABLE_FUNCTIONS))
        raise QueryRefused(
            f"a query can read the views of its run, and nothing else: {name!r} is not one of its table functions; "
            f"those are {allowed}"
        )


def _check_show(node: Tree, views: Collection[str]) -> Collection[str]:
    if node.get("query"):
        return ()
    if str(node.get("table_name") or "").strip('"').lower() != "tables":
        raise QueryRefused("SHOW and DESCRIBE show a run's views: SHOW TABLES, DESCRIBE tensors, SUMMARIZE scalars")
    return views


def _check_function(name: str) -> None:
    if name.lower() in _FUNCTIONS or name.lower().startswith(_FUNCTION_PREFIXES):
        raise QueryRefused(f"a query can read the views of its run, and nothing else: no function {name!r}")


def _listed(views: Collection[str]) -> str:
    return ", ".join(sorted(views))


def _spoken(kind: str) -> str:
    return kind.removesuffix("_NODE").removesuffix("_QUERY").replace("_", " ")


def _short(query: str) -> str:
    return repr(query.strip()[:200])
