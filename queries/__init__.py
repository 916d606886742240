"""The SQL of the project, one `.sql` file a question. Each opens with a comment: the question, parameters and
columns.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def load(name: str) -> str:
    """The text of the question `name`. Raises KeyError for one that is not there."""
    try:
        return files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise KeyError(f"no query {name!r}; there are {', '.join(names())}") from None


def names() -> list[str]:
    """The names of all questions."""
    entries = (entry.name for entry in files(__name__).iterdir())
    return sorted(entry.removesuffix(".sql") for entry in entries if entry.endswith(".sql"))
