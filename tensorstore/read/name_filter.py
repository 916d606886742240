"""The filters of tensor names that callers pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from ..config.collection import Collection, CollectionKeys
from ..errors import ConfigurationError


def names_in(names: str | Iterable[str]) -> list[str]:
    """Return one name or several as a list. Raise ConfigurationError for one that is not text."""
    found = [names] if isinstance(names, str | bytes) or not np.iterable(names) else list(names)
    for name in found:
        if not isinstance(name, str):
            raise ConfigurationError(f"the name of a tensor must be text, got {name!r}")
    return found


def name_patterns(regex: str | re.Pattern[str] | Iterable[str]) -> list[re.Pattern[str]]:
    """Return one or several compiled regular expressions. Raise ConfigurationError for an invalid one."""
    try:
        return [re.compile(text) for text in ([regex] if isinstance(regex, str | re.Pattern) else regex)]
    except (TypeError, re.error) as exc:
        raise ConfigurationError(f"{getattr(exc, 'pattern', regex)!r} is not a regular expression: {exc}") from exc


def belongs_to(name: str, collections: Sequence[str], wanted: Collection | str) -> bool:
    """Return whether a tensor belongs to a collection: by its saved collections, or by the patterns of an object."""
    collection = wanted if isinstance(wanted, str) else wanted.name
    if collection == CollectionKeys.ALL:
        return True
    # As hooks read names: without blanks at the ends, and with the default collection for no name.
    found = collection in collections or (collection.strip() or CollectionKeys.DEFAULT) in collections
    return found or (not isinstance(wanted, str) and wanted.matches(name))
