"""The age at which maintenance deletes unneeded files: younger ones may still be in use."""

from __future__ import annotations

from ..errors import ConfigurationError

DELETE_OLDER_THAN_SECONDS = 3600.0
"""The default. After an hour, no reader needs superseded files, and each writer has named the files that it wrote."""


def check_deletion_age(delete_older_than: float) -> None:
    """Raise ConfigurationError for a negative age."""
    if delete_older_than < 0:
        reason = f"delete_older_than must be a number of seconds, at least 0, got {delete_older_than!r}"
        raise ConfigurationError(reason)
