"""Steps to save, mode by mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from ..errors import ConfigurationError
from ..mode import ModeKeys
from .json_document import JsonDocument

DEFAULT_SAVE_INTERVAL = 500
STEP_ARGUMENTS = ("save_interval", "start_step", "end_step", "save_steps", "warmup_steps")
"""The arguments of a SaveConfig that hold for every mode."""

GROWING = "growing"
"""The `save_interval` that grows with the step. It depends only on the step, so that all runs save the same steps."""
GROWING_STEPS = (
    "the first ten steps, every 10th up to 100, every 50th up to 1,000, every 100th up to 10,000 and every 500th after "
    "that"
)
"""The description of the steps that it saves."""

_INTERVALS = ((10, 1), (100, 10), (1000, 50), (10_000, 100))
_LAST_INTERVAL = 500
_MOST_WARMUP_STEPS = 1000


class SaveConfigMode:
    """Steps to save of one mode.

    These are the steps of `save_steps`, and each multiple of `save_interval` that is at least `start_step` and below
    `end_step`. Numbers may be strings.

    Args:
        save_interval: Number of steps from one saved step to the next, or "growing": the first ten steps, every 10th up
            to 100, every 50th up to 1,000, every 100th up to 10,000 and every 500th after that. The framework's default
            if None.
        start_step: First step that may be saved; 0 if None.
        end_step: First step that is not saved any more; None for no end, 0 to save nothing.
        save_steps: Further steps, as a list or a comma-separated string.
        warmup_steps: The number of first steps, from `start_step` on, that are also saved; at most 1000. They become a
            part of `save_steps`.

    Raises:
        ConfigurationError: The interval is below 1, a step is negative or no integer, the range is empty, or there are
            too many `warmup_steps`.
    """

    def __init__(
        self,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: Iterable[int | str] | str | None = None,
        warmup_steps: int | str | None = None,
    ) -> None:
        self.save_interval = save_interval
        self.start_step = 0 if start_step is None else _integer("start_step", start_step)
        self.end_step = None if end_step is None else _integer("end_step", end_step)
        self.save_steps = [_integer("save_steps", step) for step in _parts(save_steps)]
        if self.end_step and self.start_step >= self.end_step:
            raise ConfigurationError(
                f"start_step={self.start_step} is not below end_step={self.end_step}: nothing would be saved"
            )
        if warmup_steps is not None:
            self._add_warmup(_integer("warmup_steps", warmup_steps))

    def _add_warmup(self, count: int) -> None:
        if count > _MOST_WARMUP_STEPS:
            raise ConfigurationError(
                f"warmup_steps must be at most {_MOST_WARMUP_STEPS}, got {count}; choose a smaller save_interval "
                "to save more steps"
            )
        end = self.start_step + count if self.end_step is None else min(self.start_step + count, self.end_step)
        self.save_steps = sorted({*self.save_steps, *range(self.start_step, end)})

    @property
    def save_interval(self) -> int | str:
        """Number of steps from one saved step to the next, or "growing"."""
        return self._default_interval if self._interval is None else self._interval

    @save_interval.setter
    def save_interval(self, save_interval: int | str | None) -> None:
        self._interval = None if save_interval is None else _interval(save_interval)
        self._default_interval = DEFAULT_SAVE_INTERVAL

    def set_default_interval(self, save_interval: int) -> None:
        """Set the interval that is used if none is configured; it depends on the framework."""
        self._default_interval = save_interval

    def interval_at(self, step: int) -> int:
        """Return the number of steps from one saved step to the next.

        Args:
            step: Step of the mode, for an interval that grows.

        Returns:
            The number of steps.
        """
        interval = self.save_interval
        if isinstance(interval, int):
            return interval
        return next((grown for end, grown in _INTERVALS if step < end), _LAST_INTERVAL)

    def should_save_step(self, step: int) -> bool:
        """Return whether a step is saved.

        Args:
            step: Step of the mode.

        Returns:
            True if it is saved.
        """
        if step in self.save_steps:
            return True
        return (
            step % self.interval_at(step) == 0
            and step >= self.start_step
            and (self.end_step is None or step < self.end_step)
        )

    def copy(self) -> SaveConfigMode:
        """Return an independent copy.

        Returns:
            The copy.
        """
        twin = SaveConfigMode(self._interval, self.start_step, self.end_step, self.save_steps)
        twin.set_default_interval(self._default_interval)
        return twin

    def to_json_dict(self) -> dict[str, Any]:
        """Return the arguments as values of JSON.

        Returns:
            A dictionary of `save_interval`, `start_step`, `end_step` and `save_steps`.
        """
        return {name: getattr(self, name) for name in ("save_interval", "start_step", "end_step", "save_steps")}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaveConfigMode) and self.to_json_dict() == other.to_json_dict()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"SaveConfigMode({', '.join(f'{k}={v}' for k, v in self.to_json_dict().items())})"


def _forward(name: str) -> property:
    """Return a property that sets all modes, and reads the value of TRAIN if they differ."""

    def get(self: Any) -> Any:
        return getattr(self._modes[ModeKeys.TRAIN], name)

    def put(self: Any, value: Any) -> None:
        checked = getattr(SaveConfigMode(**{name: value}), name)
        for config in self._modes.values():
            setattr(config, name, checked)

    return property(get, put, doc=f"`{name}` of every mode.")


class SaveConfig(JsonDocument):
    """Steps to save, for each mode.

    A mode without a configuration has that of the hook. In the hook's configuration, it has the default: every 500th
    step, every 10th for boosted trees, every one for scikit-learn.

    Args:
        mode_save_configs: Configurations of single modes, as SaveConfigMode objects or dictionaries of its arguments.
        save_interval: Number of steps from one saved step to the next, in every mode, or "growing". In the
            configuration of a hook, "growing" leaves losses at every step.
        start_step: First step that may be saved, in every mode; 0 if None.
        end_step: First step that is not saved any more, in every mode; None for no end, 0 to save nothing.
        save_steps: Further steps, in every mode, as a list or a comma-separated string.
        warmup_steps: The number of first steps of every mode, from `start_step` on, that are also saved; at most 1000.

    Raises:
        ConfigurationError: A mode is unknown, the interval is below 1, a step is negative or no integer, or a range is
            empty.
    """

    def __init__(
        self,
        mode_save_configs: Mapping[Any, SaveConfigMode | Mapping[str, Any]] | None = None,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: Iterable[int | str] | str | None = None,
        warmup_steps: int | str | None = None,
    ) -> None:
        plain = (save_interval, start_step, end_step, save_steps, warmup_steps)
        if not isinstance(mode_save_configs, Mapping | None):
            raise ConfigurationError(
                f"mode_save_configs must be a dictionary by mode, got {mode_save_configs!r:.200}; for every mode, pass "
                "save_interval=… or another argument by its name"
            )
        given = {ModeKeys.parse(mode): _mode_config(config) for mode, config in (mode_save_configs or {}).items()}
        inherits = bool(given) and all(value is None for value in plain)
        self._modes: dict[ModeKeys, SaveConfigMode] = {
            mode: given.get(mode) or SaveConfigMode(*plain) for mode in ModeKeys
        }
        self._unset = {mode for mode in ModeKeys if inherits and mode not in given}
        self._default_interval = DEFAULT_SAVE_INTERVAL

    @classmethod
    def parse(cls, value: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None) -> SaveConfig:
        """Return a SaveConfig made from anything that `save_config` of a hook or a collection accepts.

        Args:
            value: A SaveConfig, a SaveConfigMode for every mode, a dictionary of arguments or one by mode, or None.

        Returns:
            `value` itself if it is a SaveConfig, otherwise a new one.

        Raises:
            ConfigurationError: `value` is anything else.
        """
        if value is None:
            return cls()
        if isinstance(value, SaveConfig):
            return value
        if isinstance(value, SaveConfigMode):
            return cls(mode_save_configs=dict.fromkeys(ModeKeys, value))
        if isinstance(value, Mapping):
            if not set(value) & set(STEP_ARGUMENTS):
                return cls(mode_save_configs=value)
            try:
                return cls(**value)
            except TypeError as exc:
                raise ConfigurationError(f"unknown key in a save configuration: {exc}") from None
        raise ConfigurationError(f"save_config must be a SaveConfig or a dictionary by mode, got {value!r}")

    @property
    def mode_save_configs(self) -> dict[ModeKeys, SaveConfigMode]:
        """Configuration of each mode, which may be changed."""
        return dict(self._modes)

    save_interval = _forward("save_interval")
    start_step = _forward("start_step")
    end_step = _forward("end_step")
    save_steps = _forward("save_steps")

    def should_save_step(self, mode: ModeKeys, step: int) -> bool:
        """Return whether a step is saved.

        Args:
            mode: Mode in which `step` counts.
            step: Step of the mode.

        Returns:
            True if it is saved.
        """
        return self._modes[mode].should_save_step(step)

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        """Return the configuration of one mode.

        Args:
            mode: The mode.

        Returns:
            Its configuration, which may be changed.
        """
        return self._modes[ModeKeys.parse(mode)]

    def set_default_interval(self, save_interval: int) -> None:
        """Set the interval that is used in each mode if none is configured."""
        if self._default_interval != save_interval:
            self._default_interval = save_interval
            for config in self._modes.values():
                config.set_default_interval(save_interval)

    def inherit(self, parent: SaveConfig) -> None:
        """Take modes without a configuration from another configuration."""
        for mode in self._unset:
            self._modes[mode] = parent._modes[mode].copy()
        self._unset = set()

    def copy(self) -> SaveConfig:
        """Return an independent copy.

        Returns:
            The copy.
        """
        twin = SaveConfig()
        twin._modes = {mode: config.copy() for mode, config in self._modes.items()}
        twin._unset = set(self._unset)
        return twin

    def without_growth(self) -> SaveConfig:
        """Return a copy that saves every step of the modes whose interval grows.

        Returns:
            The copy, which is equal to this configuration if none grows.
        """
        twin = self.copy()
        for config in twin.mode_save_configs.values():
            if config.save_interval == GROWING:
                config.save_interval = 1
        return twin

    def to_json_dict(self) -> dict[str, Any]:
        """Return the configuration of each mode as values of JSON.

        Returns:
            A dictionary by the mode's name, which `from_dict` takes.
        """
        return {mode.name: config.to_json_dict() for mode, config in self._modes.items()}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Create a configuration from the result of `to_json_dict`.

        Args:
            document: Configurations by the mode's name. A missing mode, or None, has that of the hook.

        Returns:
            The configuration.
        """
        return cls(mode_save_configs={mode: config for mode, config in document.items() if config is not None})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaveConfig) and self._modes == other._modes

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"SaveConfig({', '.join(f'{mode.name}: {config!r}' for mode, config in self._modes.items())})"


def with_save_config(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a hook, with the arguments of a SaveConfig replaced by `save_config`.

    Args:
        arguments: The arguments by name.

    Returns:
        The arguments without those of `STEP_ARGUMENTS`.

    Raises:
        ConfigurationError: There is a `save_config` as well, or a value is wrong.
    """
    steps = {name: arguments[name] for name in STEP_ARGUMENTS if arguments.get(name) is not None}
    others = {name: value for name, value in arguments.items() if name not in STEP_ARGUMENTS}
    if steps and others.get("save_config") is not None:
        raise ConfigurationError(f"pass {' and '.join(steps)} as a part of save_config, or without save_config")
    return {**others, "save_config": SaveConfig(**steps)} if steps else others


def _mode_config(config: SaveConfigMode | Mapping[str, Any]) -> SaveConfigMode:
    if isinstance(config, SaveConfigMode):
        return config
    if isinstance(config, Mapping):
        try:
            return SaveConfigMode(**config)
        except TypeError as exc:
            raise ConfigurationError(f"unknown key in a mode's save configuration: {exc}") from None
    raise ConfigurationError(f"a mode's save configuration must be a SaveConfigMode or a dictionary, got {config!r}")


def _interval(value: Any) -> int | str:
    if isinstance(value, str) and value.strip().lower() == GROWING:
        return GROWING
    return _integer("save_interval", value, 1, f"an integer or {GROWING!r}")


def _integer(name: str, value: Any, least: int = 0, kind: str = "an integer") -> int:
    try:
        number = int(value)
    except Exception:  # noqa: BLE001 - of a number of any library
        number = None
    # int() would round 2.5 down and take True for 1.
    if number is None or isinstance(value, bool) or (not isinstance(value, str) and number != value):
        raise ConfigurationError(f"{name} must be {kind}, got {value!r}")
    if number < least:
        raise ConfigurationError(f"{name} must be at least {least}, got {number}")
    return number


def _parts(value: Iterable[int | str] | str | None) -> Iterable[int | str]:
    if value is None:
        return ()
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    try:
        return list(value)
    except Exception as exc:  # arrays and tensors of any library are iterable, unless they have no axes
        raise ConfigurationError(f"save_steps must be a list or a comma-separated string, got {value!r}") from exc
