"""The versions of libraries that their hooks and callbacks work with."""

from __future__ import annotations

import re

from tensortrial.errors import UnsupportedFramework

from ..core.log import logger


def check_version(package: str, version: str, oldest: str, newest_tested: str) -> None:
    """Check that the callback works with this version of a library, such as "5.23.0".

    `oldest` has what the callback needs, and the tests ran with `newest_tested`. A newer major version is logged,
    because it most likely works.

    Raises:
        UnsupportedFramework: The library is older than `oldest`.
    """
    if _release(version) < _release(oldest):
        raise UnsupportedFramework(package, version, oldest)
    if _release(version)[:1] > _release(newest_tested)[:1]:
        logger.warning(
            "%s %s is newer than %s, the newest that tensortrial was tested with; if steps or tensors are missing, "
            "look for a newer tensortrial",
            package,
            version,
            newest_tested,
        )


def _release(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (5, 23, 0) of "5.23.0.dev0"."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
