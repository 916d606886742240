"""The parts and the secrets of database URLs."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from ..errors import ExportError

_SECRETS = ("password", "sslpassword")


def split(url: str, name: str) -> SplitResult:
    """Return the parts of the URL.

    Raises ExportError if a password may be unencoded: its end would be treated as the host, and shown in messages.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = None
    if parts is None or parts.netloc.count("@") > 1 or "@" in parts.path + parts.query + parts.fragment:
        reason = "in the user and the password of a URL, signs such as @ / ? # [ must be written as %40 %2F %3F %23 %5B"
        raise ExportError(name, reason)
    return parts


def secrets(parts: SplitResult) -> list[str]:
    """Return the secrets of a URL, decoded and as they were written."""
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    private = [parts.password, *(parameters.get(name) for name in _SECRETS)]
    return [text for each in private if each for text in (each, unquote(each))]


def without(secrets: Iterable[str], message: str) -> str:
    """Return the message with *** in place of each secret."""
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, "***")
    return message.strip()
