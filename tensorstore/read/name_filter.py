"""The filters of tensor names that callers pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..config.collection import Collection, CollectionKeys
from ..errors import ConfigurationError


def name_patterns(regex: str | re.Pattern[str] | Iterable[str]) -> list[re.Pattern[str]]:
    """Return one or several compiled regular expressions. Raise ConfigurationError for an invalid one."""
    found = []
    for text in [regex] if isinstance(regex, str | re.Pattern) else regex:
        try:
            found.append(re.compile(text))
        except re.error as exc:
            raise ConfigurationError(f"{text!r} is not a regular expression: {exc}") from exc
    return found


def belongs_to(name: str, collections: Sequence[str], wanted: Collection | str) -> bool:
    """Return whether a tensor belongs to a collection: by its saved collections, or by the patterns of an object."""
    collection = wanted if isinstance(wanted, str) else wanted.name
    if collection == CollectionKeys.ALL:
        return True
    # As hooks read names: without blanks at the ends, and with the default collection for no name.
    found = collection in collections or (collection.strip() or CollectionKeys.DEFAULT) in collections
    return found or (not isinstance(wanted, str) and wanted.matches(name))
