"""The SQL of the project, one `.sql` file a query.

- `views/`: the public views, over one run or many. Their first column is `run`. It is left out if a run is opened
  alone.
- `named/`: named queries for users, over the views of many runs.

Each file opens with a comment: the question or the view, the parameters, and the columns.
"""

from __future__ import annotations

from functools import cache
from pkgutil import get_data


@cache
def load(name: str) -> str:
    """Return the text of a query, such as `named/best_runs`. Raises KeyError for an unknown name."""
    try:
        # importlib.resources imports modules first, which takes longer than reading all files.
        return (get_data(__name__, f"{name}.sql") or b"").decode()
    except OSError:
        folder = name.rpartition("/")[0]
        raise KeyError(f"unknown query {name!r}; known queries: {', '.join(names(folder))}") from None


def load_view(view: str, schema: str = "catalogue") -> str:
    """Return the SELECT of a public view, over tables and views in a schema of this name."""
    return load(f"views/{view}").replace("catalogue.", f"{schema}.")


def names(folder: str) -> list[str]:
    """Return the names of the queries in a folder, sorted."""
    from importlib.resources import files

    entries = (entry.name for entry in files(__name__).joinpath(folder).iterdir())
    return sorted(entry.removesuffix(".sql") for entry in entries if entry.endswith(".sql"))
