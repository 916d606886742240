"""A named group of tensors, with when and in what form they are saved."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InvalidCollectionConfiguration
from .reduction_config import ReductionConfig, boolean, names
from .save_config import SaveConfig


class CollectionKeys:
    """The names of the built-in collections."""

    ALL = "all"
    DEFAULT = "default"
    WEIGHTS = "weights"
    BIASES = "biases"
    GRADIENTS = "gradients"
    LOSSES = "losses"
    METRICS = "metrics"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    LABELS = "labels"
    PREDICTIONS = "predictions"
    LAYERS = "layers"
    BUFFERS = "buffers"
    SM_METRICS = "sm_metrics"
    OPTIMIZER_VARIABLES = "optimizer_variables"
    TENSORFLOW_SUMMARIES = "tensorflow_summaries"
    HYPERPARAMETERS = "hyperparameters"
    FEATURE_IMPORTANCE = "feature_importance"
    AVERAGE_SHAP = "average_shap"
    FULL_SHAP = "full_shap"
    TREES = "trees"


class Changes:
    """How often the collections of this process were changed."""

    patterns = 0
    names = 0


class Collection:
    """Tensors whose name is in `tensor_names` or matches one of `include_regex` (`re.search`, case-sensitive).

    `save_config` and `reduction_config` are the hook's until set here. Raises InvalidCollectionConfiguration for a
    regular expression that does not compile.
    """

    def __init__(
        self,
        name: str,
        include_regex: Iterable[str] | str | None = None,
        tensor_names: Iterable[str] | None = None,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | Mapping[Any, Any] | None = None,
        save_histogram: bool | str | None = None,
    ) -> None:
        self.name = name
        self._patterns: list[re.Pattern[str]] = []
        self._tensor_names: set[str] = set(tensor_names or ())
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = None if save_histogram is None else boolean("save_histogram", save_histogram)
        self.include(include_regex or ())

    @property
    def patterns(self) -> list[re.Pattern[str]]:
        """The regular expressions of `include_regex`, compiled."""
        return self._patterns

    @property
    def include_regex(self) -> list[str]:
        return [pattern.pattern for pattern in self._patterns]

    @include_regex.setter
    def include_regex(self, regexes: Iterable[str] | str) -> None:
        self._patterns = []
        self.include(regexes)

    @property
    def save_config(self) -> SaveConfig | None:
        return self._save_config

    @save_config.setter
    def save_config(self, save_config: SaveConfig | Mapping[Any, Any] | None) -> None:
        self._save_config = None if save_config is None else SaveConfig.parse(save_config)

    @property
    def tensor_names(self) -> set[str]:
        return self._tensor_names

    @tensor_names.setter
    def tensor_names(self, tensor_names: Iterable[str]) -> None:
        self._tensor_names = set(tensor_names)
        Changes.names += 1

    def include(self, regex: Iterable[str] | str) -> None:
        """Match also what one regular expression, or each of several, finds."""
        for text in [regex] if isinstance(regex, str) else regex:
            self._patterns.append(compile_regex(text, self.name))
        Changes.patterns += 1

    def add_tensor_names(self, tensor_names: Iterable[str]) -> None:
        before = len(self._tensor_names)
        self._tensor_names.update(tensor_names)
        Changes.names += len(self._tensor_names) != before

    def matches(self, tensor_name: str) -> bool:
        return tensor_name in self._tensor_names or any(pattern.search(tensor_name) for pattern in self._patterns)

    @property
    def is_empty(self) -> bool:
        """Whether no tensor can ever match."""
        return not (self._patterns or self._tensor_names)

    @property
    def fingerprint(self) -> tuple[int, ...]:
        """Changes when the collection starts to match, or to keep, something else."""
        reduce = self.reduction_config
        kept = (id(reduce), hash(reduce.statistics), reduce.raw) if reduce else (0, 0, 0)
        matched = (id(self._patterns), len(self._patterns), id(self._tensor_names), len(self._tensor_names))
        return (id(self), *matched, *kept, bool(self.save_histogram))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "include_regex": self.include_regex,
            "tensor_names": sorted(self._tensor_names),
            "save_config": self.save_config.to_json() if self.save_config else None,
            "reduction_config": self.reduction_config.to_json() if self.reduction_config else None,
            "save_histogram": self.save_histogram,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Collection:
        """Return the collection that `to_json` described.

        Raises:
            InvalidCollectionConfiguration: A regular expression or a configuration is damaged, or of a later release.
        """
        save, reduce = document.get("save_config"), document.get("reduction_config")
        try:
            return cls(
                document["name"],
                include_regex=document.get("include_regex"),
                tensor_names=document.get("tensor_names"),
                save_config=SaveConfig.from_json(save) if save else None,
                reduction_config=ReductionConfig.from_json(reduce) if reduce else None,
                save_histogram=document.get("save_histogram"),
            )
        except InvalidCollectionConfiguration:
            raise
        except (TypeError, ValueError) as exc:
            raise InvalidCollectionConfiguration(document["name"], f"it cannot be read: {exc}") from exc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        names = sorted(self._tensor_names)[:5]
        return f"Collection({self.name!r}, include_regex={self.include_regex}, tensor_names={names})"


def check_collection_name(name: Any) -> None:
    """Raise InvalidCollectionConfiguration for a collection's name that is no text, is blank, or holds control
    characters or half a surrogate pair: no reader could show it or query for it."""
    if not isinstance(name, str):
        raise InvalidCollectionConfiguration(name, f"its name must be text, got {type(name).__name__}")
    if not name.strip():
        raise InvalidCollectionConfiguration(name, "its name is empty")
    for character in name:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidCollectionConfiguration(
                name, f"its name may not contain {character!r}: leave out control characters and lone surrogates"
            )


def compile_regex(text: str, collection: str) -> re.Pattern[str]:
    """Raises InvalidCollectionConfiguration naming the collection and what is wrong with the expression."""
    try:
        return re.compile(text)
    except (re.error, TypeError, OverflowError, RecursionError) as exc:
        raise InvalidCollectionConfiguration(collection, f"{text!r} is not a regular expression: {exc}") from exc


def regexes(value: Iterable[str] | str | None) -> list[str]:
    """Regular expressions from a list or from a comma-separated string."""
    return names(value)
