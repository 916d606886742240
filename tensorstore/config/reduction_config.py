"""Statistics to save instead of, or next to, the raw value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from ..errors import ConfigurationError, message_of, shown
from ..statistics.definitions import STATISTICS, parse_axis, parse_statistic
from ..truth import truth_of
from .changes import Configuration
from .json_document import JsonDocument

_NORMS = ("l1", "l2")


class ReductionConfig(JsonDocument, Configuration):
    """Statistics to save of a tensor.

    With statistics, the raw value is saved only if `save_raw_tensor` is true. Lists of names may be comma-separated
    strings.

    Args:
        reductions: Any of min, max, mean, median, std, variance, sum, prod, rms, skewness, kurtosis, nan_count,
            inf_count, zero_count, subnormal_count, saturated_count.
        abs_reductions: Any of min, max, mean, median, std, variance, sum, prod, of the absolute values.
        norms: l1, l2, or both.
        abs_norms: l1, l2, or both, of the absolute values.
        save_raw_tensor: Whether to save the raw value, too.
        save_shape: With no statistics, save the shape and no raw value. The shape is saved in any case.
        digest: Save the digest of the value: 64 bits by which values are compared without saving them. It is always
            saved with a raw value, unless that is a single number.
        axis: Also save the statistics for each index along this axis, such as each channel or head, as small tensors,
            which `reduction_value(step, name, axis=axis)` returns. Negative ones count from the last axis.
        quantiles: Save a sketch of the value, from which `quantile` returns any quantile to 0.8 % of itself.

    Raises:
        ConfigurationError: A name is unknown; the message has the nearest known one. Or `axis` is no integer, or is
            passed without statistics.
    """

    def __init__(  # noqa: PLR0913 - an argument for each kind of statistics, and for each additional form
        self,
        reductions: Iterable[str] | str | None = None,
        abs_reductions: Iterable[str] | str | None = None,
        norms: Iterable[str] | str | None = None,
        abs_norms: Iterable[str] | str | None = None,
        save_raw_tensor: bool | str = False,
        save_shape: bool | str = False,
        digest: bool | str = False,
        axis: int | str | None = None,
        quantiles: bool | str = False,
    ) -> None:
        self.reductions = [parse_statistic(name) for name in names(reductions, "reductions")]
        self.abs_reductions = [_unsigned(name) for name in names(abs_reductions, "abs_reductions")]
        self.norms = [_norm(name) for name in names(norms, "norms")]
        self.abs_norms = [_norm(name) for name in names(abs_norms, "abs_norms")]
        self.save_raw_tensor = boolean("save_raw_tensor", save_raw_tensor)
        self.save_shape = boolean("save_shape", save_shape)
        self.digest = boolean("digest", digest)
        self.axis = parse_axis(axis)
        self.quantiles = boolean("quantiles", quantiles)
        if self.axis is not None and not self.statistics:
            raise ConfigurationError(f"axis={self.axis} needs statistics to save along it, such as norms=['l2']")

    @classmethod
    def from_names(cls, statistics: Iterable[str] | str | None, **options: Any) -> Self:
        """Create a configuration from a list of all kinds, as in JSON configurations: `min,abs_mean,l2,abs_l1`.

        Args:
            statistics: Names of statistics, as a list or a comma-separated string.
            options: `save_raw_tensor`, `save_shape`, `digest`, `axis` and `quantiles`.

        Returns:
            The configuration.

        Raises:
            ConfigurationError: A name is unknown.
        """
        parsed = [parse_statistic(name) for name in names(statistics)]
        absolute = [name[4:] for name in parsed if name.startswith("abs_")]
        signed = [name for name in parsed if not name.startswith("abs_")]
        return cls(
            reductions=[name for name in signed if name not in _NORMS],
            abs_reductions=[name for name in absolute if name not in _NORMS],
            norms=[name for name in signed if name in _NORMS],
            abs_norms=[name for name in absolute if name in _NORMS],
            **options,
        )

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of all statistics to save, in the order of the index's columns."""
        wanted = {*self.reductions, *self.norms}
        wanted |= {f"abs_{name}" for name in (*self.abs_reductions, *self.abs_norms)}
        return tuple(name for name in STATISTICS if name in wanted)

    @property
    def raw(self) -> bool:
        """True if the raw value is saved."""
        return self.save_raw_tensor or not (self.statistics or self.save_shape or self.digest or self.quantiles)

    def to_json_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Create a configuration from the result of `to_json_dict`.

        Args:
            document: The arguments by name. Without abs_reductions, norms and abs_norms, `reductions` may be of all
                kinds, as in JSON configurations: `min,abs_mean,l2`.

        Returns:
            The configuration.
        """
        if set(document) <= {"reductions", "save_raw_tensor", "save_shape", "digest", "axis", "quantiles"}:
            options = dict(document)
            return cls.from_names(options.pop("reductions", None), **options)
        return cls(**document)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReductionConfig) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"ReductionConfig({', '.join(f'{k}={v!r}' for k, v in vars(self).items() if _is_set(v))})"


def _is_set(value: Any) -> bool:
    return bool(value) or (value == 0 and not isinstance(value, bool))


def check_reduction_config(value: Any) -> None:
    """Raise ConfigurationError for anything but a ReductionConfig or None."""
    if value is not None and not isinstance(value, ReductionConfig):
        raise ConfigurationError(
            f"reduction_config must be a ReductionConfig, got {value!r:.200}; ReductionConfig.from_dict makes one of a "
            "dictionary, ReductionConfig.from_names of names"
        )


def names(value: Iterable[str] | str | None, argument: str = "names") -> list[str]:
    """Return a list of names from a list or from a comma-separated string, the value of an argument.

    Raises:
        ConfigurationError: `value` is anything else, or a name in a list is blank.
    """
    if value is None:
        return []
    try:
        parts = value.split(",") if isinstance(value, str) else list(value)
    except Exception as exc:  # arrays and tensors of any library are iterable, unless they have no axes
        raise ConfigurationError(f"{argument} must be a list or a comma-separated string, got {shown(value)}") from exc
    for part in parts:
        if not isinstance(part, str) or not (part.strip() or isinstance(value, str)):
            raise ConfigurationError(f"a name must be text that is not blank, got {shown(part)} in {shown(value)}")
    return [part.strip() for part in parts if part.strip()]


def boolean(name: str, value: Any) -> bool:
    """Return a truth value that may be a string, or a list of one.

    Raises:
        ConfigurationError: `value` is neither.
    """
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if isinstance(value, bool):
        return value
    text = message_of(value)
    found = False if text.strip().lower() in ("none", "") else truth_of(text)
    if found is None:
        raise ConfigurationError(f"{name} must be true or false, got {shown(value)}")
    return found


def _norm(name: str) -> str:
    parsed = parse_statistic(name)
    if parsed not in _NORMS:
        raise ConfigurationError(f"unknown norm {name!r}; known norms: {', '.join(_NORMS)}")
    return parsed


def _unsigned(name: str) -> str:
    parsed = parse_statistic(name)
    if f"abs_{parsed}" not in STATISTICS:
        raise ConfigurationError(
            f"{name!r} has no variant for absolute values; use it in reductions instead of abs_reductions"
        )
    return parsed
