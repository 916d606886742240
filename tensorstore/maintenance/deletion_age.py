"""The age at which maintenance deletes unneeded files: younger ones may still be in use."""

from __future__ import annotations

DELETE_OLDER_THAN_SECONDS = 3600.0
"""The default. After an hour, no reader needs superseded files, and each writer has named the files that it wrote."""
