"""Named queries: common questions about runs, as SQL with parameters.

tensortrial.query("runs", "losses", runs="lr=%").df()
print(tensortrial.query_text("losses", "postgres"))
"""

from __future__ import annotations

from .named_query import NamedQuery, list_queries, named_query, query, query_text

__all__ = ["NamedQuery", "list_queries", "named_query", "query", "query_text"]
