"""The number of changes to the configuration of what is saved, for results that are computed from it and kept."""

from __future__ import annotations


class Changes:
    """The numbers of changes, each of which only grows."""

    patterns = 0
    """The changes of the regular expressions of collections."""
    names = 0
    """The changes of the names of tensors in collections."""
    attributes = 0
    """The changes of the attributes of collections and of their configurations."""

    @classmethod
    def count(cls) -> int:
        """Return the number of all changes."""
        return cls.patterns + cls.names + cls.attributes


class Configuration:
    """An object that counts the changes of its attributes."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        Changes.attributes += 1
