"""A named group of tensors, with the steps and the form in which they are saved."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Self

from ..errors import InvalidCollectionConfiguration
from ..html_table import TableOfValues, html_table
from ..visible import counted
from .changes import Changes, Configuration
from .json_document import JsonDocument
from .reduction_config import ReductionConfig, boolean, check_reduction_config
from .save_config import SaveConfig

# It does not match `loss_scale`, `loss_weight` or `glossary`, nor scalars of scripts for smdebug, `scalar/…`.
LOSS_NAMES = r"(?is)^(?!scalar/).*loss(es)?(?![_\W]?(scal|weight|coef|factor))(?![a-z])"
"""Matches the names of numbers that are losses, such as `val_loss` and `loss/total`."""


def is_loss(name: str) -> bool:
    """Return whether a number of this name is a loss."""
    return bool(re.search(LOSS_NAMES, name))


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
    UPDATES = "updates"
    IMAGES = "images"
    HEALTH = "health"
    BY_AXIS = "by_axis"


WITH_GAPS = (CollectionKeys.TREES, CollectionKeys.HYPERPARAMETERS)
"""Collections in which NaN is no fault: a leaf has no split, and NaN is a hyperparameter of XGBoost."""

NUMBERS = frozenset(
    {
        *(CollectionKeys.LOSSES, CollectionKeys.METRICS, CollectionKeys.SM_METRICS),
        *(CollectionKeys.FEATURE_IMPORTANCE, CollectionKeys.AVERAGE_SHAP),
    }
)
"""Collections of tensors with one element."""


class Collection(JsonDocument, Configuration):
    """A named group of tensors: those whose name is in `tensor_names` or matches one of `include_regex`.

    Patterns are searched anywhere in a name (`re.search`), and are case-sensitive.

    Args:
        name: Name of the collection.
        include_regex: One regular expression, or several.
        tensor_names: Full name of a tensor, or of several.
        reduction_config: Statistics to save; those of the hook if None.
        save_config: Steps to save, as a SaveConfig or another argument of `SaveConfig.parse`; None for those of the
            hook.
        save_histogram: Whether to save a histogram of each tensor.

    Raises:
        InvalidCollectionConfiguration: A regular expression does not compile, or `include_regex` or `tensor_names` is
            neither text nor several texts.
        ConfigurationError: `reduction_config` is not a ReductionConfig.
    """

    def __init__(
        self,
        name: str,
        include_regex: Iterable[str] | str | None = None,
        tensor_names: Iterable[str] | str | None = None,
        reduction_config: ReductionConfig | None = None,
        save_config: SaveConfig | Mapping[Any, Any] | None = None,
        save_histogram: bool | str | None = None,
    ) -> None:
        self._name = name
        self._patterns: list[re.Pattern[str]] = []
        self._tensor_names: set[str] = set(self._several("tensor_names", tensor_names or ()))
        self.reduction_config = reduction_config
        self.save_config = save_config
        self.save_histogram = None if save_histogram is None else boolean("save_histogram", save_histogram)
        self.include(include_regex or ())

    @property
    def name(self) -> str:
        """Name of the collection, which cannot be changed."""
        return self._name

    @property
    def patterns(self) -> list[re.Pattern[str]]:
        """Compiled regular expressions of `include_regex`."""
        return self._patterns

    @property
    def include_regex(self) -> list[str]:
        """Regular expressions that the names of tensors are searched for."""
        return [pattern.pattern for pattern in self._patterns]

    @include_regex.setter
    def include_regex(self, regexes: Iterable[str] | str) -> None:
        self._patterns = []
        self.include(regexes)

    @property
    def save_config(self) -> SaveConfig | None:
        """Steps to save, or None for those of the hook."""
        return self._save_config

    @save_config.setter
    def save_config(self, save_config: SaveConfig | Mapping[Any, Any] | None) -> None:
        self._save_config = None if save_config is None else SaveConfig.parse(save_config)

    @property
    def reduction_config(self) -> ReductionConfig | None:
        """Statistics to save, or None for those of the hook."""
        return self._reduction_config

    @reduction_config.setter
    def reduction_config(self, reduction_config: ReductionConfig | None) -> None:
        check_reduction_config(reduction_config)
        self._reduction_config = reduction_config

    @property
    def tensor_names(self) -> set[str]:
        """Full names of tensors that belong to the collection."""
        return self._tensor_names

    @tensor_names.setter
    def tensor_names(self, tensor_names: Iterable[str] | str) -> None:
        self._tensor_names = set(self._several("tensor_names", tensor_names))
        Changes.names += 1

    def include(self, regex: Iterable[str] | str) -> None:
        """Add regular expressions.

        Args:
            regex: One regular expression, or several.

        Raises:
            InvalidCollectionConfiguration: A regular expression does not compile.
        """
        for text in self._several("include_regex", regex):
            self._patterns.append(compile_regex(text, self.name))
        Changes.patterns += 1

    def add_tensor_names(self, tensor_names: Iterable[str] | str) -> None:
        """Add tensors by their full names.

        Args:
            tensor_names: Name of a tensor, or of several.
        """
        # Hooks add the same names repeatedly, which must not count as a change.
        if added := set(self._several("tensor_names", tensor_names)) - self._tensor_names:
            self._tensor_names |= added
            Changes.names += 1

    def add_tensor_name(self, tensor_name: str) -> None:
        """Add a tensor by its full name.

        Args:
            tensor_name: Name of the tensor.
        """
        self.add_tensor_names(tensor_name)

    def matches(self, tensor_name: str) -> bool:
        """Return whether a tensor belongs to the collection.

        Args:
            tensor_name: Full name of the tensor.

        Returns:
            True if it is one of `tensor_names` or matches one of `include_regex`.
        """
        return tensor_name in self._tensor_names or any(pattern.search(tensor_name) for pattern in self._patterns)

    def _several(self, argument: str, value: Iterable[str] | str) -> list[str]:
        if isinstance(value, str):
            return [value]
        texts = list(value) if isinstance(value, Iterable) else [value]
        for text in texts:
            if not isinstance(text, str):
                raise InvalidCollectionConfiguration(self.name, f"{argument} must be one text or several, got {text!r}")
        return texts

    @property
    def is_empty(self) -> bool:
        """True if no tensor can ever match."""
        return not (self._patterns or self._tensor_names)

    @property
    def fingerprint(self) -> tuple[int, ...]:
        """Value that changes when the collection matches other tensors, or saves them in another form."""
        reduce = self.reduction_config
        kept = (id(reduce), hash(reduce.statistics), reduce.raw) if reduce else (0, 0, 0)
        matched = (id(self._patterns), len(self._patterns), id(self._tensor_names), len(self._tensor_names))
        return (id(self), *matched, *kept, bool(self.save_histogram))

    def to_json_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "include_regex": self.include_regex,
            "tensor_names": sorted(self._tensor_names),
            "save_config": self.save_config.to_json_dict() if self.save_config else None,
            "reduction_config": self.reduction_config.to_json_dict() if self.reduction_config else None,
            "save_histogram": self.save_histogram,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Create a collection from the result of `to_json_dict`.

        Args:
            document: The arguments by name.

        Returns:
            The collection.

        Raises:
            InvalidCollectionConfiguration: A regular expression or a configuration is damaged, or of a later release.
        """
        save, reduce = document.get("save_config"), document.get("reduction_config")
        try:
            return cls(
                document["name"],
                include_regex=document.get("include_regex"),
                tensor_names=document.get("tensor_names"),
                save_config=SaveConfig.from_dict(save) if save else None,
                reduction_config=ReductionConfig.from_dict(reduce) if reduce else None,
                save_histogram=document.get("save_histogram"),
            )
        except InvalidCollectionConfiguration:
            raise
        except (TypeError, ValueError) as exc:
            raise InvalidCollectionConfiguration(document["name"], f"it cannot be read: {exc}") from exc

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [("include_regex", ", ".join(self.include_regex))]
        rows += [("tensor", name) for name in sorted(self._tensor_names)]
        return html_table(f"Collection {self.name}, {counted(len(self._tensor_names), 'tensor')}", rows)

    def __repr__(self) -> str:
        names = sorted(self._tensor_names)[:5]
        return f"Collection({self.name!r}, include_regex={self.include_regex}, tensor_names={names})"


class Collections(TableOfValues[Collection]):
    """Collections by their names, which a notebook shows with their numbers of tensors."""

    title = "Collections"

    def _shown(self, value: Collection) -> object:
        return counted(len(value.tensor_names), "tensor")


def check_collection_name(name: Any) -> None:
    """Raise InvalidCollectionConfiguration for a name that no reader could show or query for.

    Such a name is not text, is blank or has a blank at an end, or contains control characters or lone surrogates.
    """
    if not isinstance(name, str):
        raise InvalidCollectionConfiguration(name, f"its name must be text, got {type(name).__name__}")
    if not name.strip():
        raise InvalidCollectionConfiguration(name, "its name is empty")
    if name != name.strip():
        raise InvalidCollectionConfiguration(name, f"its name has a blank at an end: use {name.strip()!r}")
    for character in name:
        if unicodedata.category(character) in ("Cc", "Cs"):
            raise InvalidCollectionConfiguration(
                name, f"its name may not contain {character!r}: leave out control characters and lone surrogates"
            )


def compile_regex(text: str, collection: str) -> re.Pattern[str]:
    """Return a compiled regular expression of a collection.

    Raises:
        InvalidCollectionConfiguration: It is not a regular expression. The message names the collection.
    """
    try:
        return re.compile(text)
    except (re.error, TypeError, OverflowError, RecursionError) as exc:
        raise InvalidCollectionConfiguration(collection, f"{text!r} is not a regular expression: {exc}") from exc
