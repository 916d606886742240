"""The conversion of configurations to and from JSON."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from ..errors import ConfigurationError


class JsonDocument(ABC):
    """A configuration that can be converted to and from JSON."""

    @abstractmethod
    def to_json_dict(self) -> dict[str, Any]:
        """Return the configuration as values of JSON.

        Returns:
            A dictionary that `from_dict` takes.
        """

    @classmethod
    @abstractmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Create a configuration from the result of `to_json_dict`."""

    def to_json(self) -> str:
        """Return the result of `to_json_dict` as text.

        Returns:
            JSON, which `from_json` takes.
        """
        return json.dumps(self.to_json_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Create a configuration from the result of `to_json`.

        Args:
            text: JSON.

        Returns:
            The configuration.

        Raises:
            ConfigurationError: It is not JSON, or not of such a configuration.
        """
        try:
            document = json.loads(text)
            if isinstance(document, dict):
                return cls.from_dict(document)
            problem = f"it holds {type(document).__name__} instead of an object"
        except ConfigurationError:
            raise
        except KeyError as exc:
            problem = f"it lacks {exc}"
        except (TypeError, ValueError, RecursionError) as exc:
            problem = str(exc)
        raise ConfigurationError(f"this is not the JSON of a {cls.__name__}: {problem}")
