"""When to save: which steps of which mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ConfigurationError
from ..mode import ModeKeys

DEFAULT_SAVE_INTERVAL = 500


class SaveConfigMode:
    """The steps of one mode that are saved: every step of `save_steps`, and each multiple of `save_interval` that is
    at least `start_step` and below `end_step` (None: no end; 0: none at all).

    Numbers may come as strings. Raises ConfigurationError for an interval below 1, a negative or non-integer step,
    and a range that is empty (except by `end_step=0`, the documented way to switch a collection off).
    """

    def __init__(
        self,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: Iterable[int | str] | str | None = None,
    ) -> None:
        self.save_interval = save_interval
        self.start_step = 0 if start_step is None else _integer("start_step", start_step)
        self.end_step = None if end_step is None else _integer("end_step", end_step)
        self.save_steps = [_integer("save_steps", step) for step in _parts(save_steps)]
        if self.end_step and self.start_step >= self.end_step:
            raise ConfigurationError(
                f"start_step={self.start_step} is not below end_step={self.end_step}: nothing would be saved"
            )

    @property
    def save_interval(self) -> int:
        return self._default_interval if self._interval is None else self._interval

    @save_interval.setter
    def save_interval(self, save_interval: int | str | None) -> None:
        self._interval = None if save_interval is None else _integer("save_interval", save_interval, 1)
        self._default_interval = DEFAULT_SAVE_INTERVAL

    def set_default_interval(self, save_interval: int) -> None:
        """What the interval is as long as nobody gives one: not every framework has the same."""
        self._default_interval = save_interval

    def should_save_step(self, step: int) -> bool:
        if step in self.save_steps:
            return True
        return (
            step % self.save_interval == 0
            and step >= self.start_step
            and (self.end_step is None or step < self.end_step)
        )

    def copy(self) -> SaveConfigMode:
        twin = SaveConfigMode(self._interval, self.start_step, self.end_step, self.save_steps)
        twin.set_default_interval(self._default_interval)
        return twin

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("save_interval", "start_step", "end_step", "save_steps")}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaveConfigMode) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"SaveConfigMode({', '.join(f'{k}={v}' for k, v in self.to_json().items())})"


def _forward(name: str) -> property:
    """`config.end_step = 0` sets every mode at once; reading gives TRAIN's, where the modes differ."""

    def get(self: Any) -> Any:
        return getattr(self._modes[ModeKeys.TRAIN], name)

    def put(self: Any, value: Any) -> None:
        checked = getattr(SaveConfigMode(**{name: value}), name)
        for config in self._modes.values():
            setattr(config, name, checked)

    return property(get, put, doc=f"`{name}` of every mode.")


class SaveConfig:
    """When to save, for each mode.

    The four plain arguments hold for every mode; `mode_save_configs` sets modes apart, as SaveConfigMode objects or
    dictionaries of the same four. A mode that is set nowhere follows the hook's configuration, and in the hook's own
    the defaults: every 500th step, or what the framework's hook has instead.
    """

    def __init__(
        self,
        mode_save_configs: Mapping[Any, SaveConfigMode | Mapping[str, Any]] | None = None,
        save_interval: int | str | None = None,
        start_step: int | str | None = None,
        end_step: int | str | None = None,
        save_steps: Iterable[int | str] | str | None = None,
    ) -> None:
        plain = (save_interval, start_step, end_step, save_steps)
        given = {ModeKeys.parse(mode): _mode_config(config) for mode, config in (mode_save_configs or {}).items()}
        inherits = bool(given) and all(value is None for value in plain)
        self._modes: dict[ModeKeys, SaveConfigMode] = {
            mode: given.get(mode) or SaveConfigMode(*plain) for mode in ModeKeys
        }
        self._unset = {mode for mode in ModeKeys if inherits and mode not in given}
        self._default_interval = DEFAULT_SAVE_INTERVAL

    @classmethod
    def parse(cls, value: SaveConfig | SaveConfigMode | Mapping[Any, Any] | None) -> SaveConfig:
        """A SaveConfig from all that a hook's or a collection's `save_config` may be given as."""
        if value is None:
            return cls()
        if isinstance(value, SaveConfig):
            return value
        if isinstance(value, SaveConfigMode):
            return cls(mode_save_configs=dict.fromkeys(ModeKeys, value))
        if isinstance(value, Mapping):
            plain = {"save_interval", "start_step", "end_step", "save_steps"}
            return cls(**value) if set(value) & plain else cls(mode_save_configs=value)
        raise ConfigurationError(f"save_config must be a SaveConfig or a dictionary by mode, not {value!r}")

    save_interval = _forward("save_interval")
    start_step = _forward("start_step")
    end_step = _forward("end_step")
    save_steps = _forward("save_steps")

    def should_save_step(self, mode: ModeKeys, step: int) -> bool:
        """Whether `step`, counted in `mode`, is saved."""
        return self._modes[mode].should_save_step(step)

    def get_save_config(self, mode: ModeKeys) -> SaveConfigMode:
        return self._modes[ModeKeys.parse(mode)]

    def set_default_interval(self, save_interval: int) -> None:
        """What the interval of each mode is as long as nobody gives one."""
        if self._default_interval != save_interval:
            self._default_interval = save_interval
            for config in self._modes.values():
                config.set_default_interval(save_interval)

    def inherit(self, parent: SaveConfig) -> None:
        """Take the modes that were set nowhere from `parent`."""
        for mode in self._unset:
            self._modes[mode] = parent._modes[mode].copy()
        self._unset = set()

    def copy(self) -> SaveConfig:
        twin = SaveConfig(mode_save_configs={mode: config.copy() for mode, config in self._modes.items()})
        twin._unset = set(self._unset)
        return twin

    def to_json(self) -> dict[str, Any]:
        return {mode.name: config.to_json() for mode, config in self._modes.items()}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> SaveConfig:
        return cls(mode_save_configs=dict(document))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaveConfig) and self._modes == other._modes

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"SaveConfig({', '.join(f'{mode.name}: {config!r}' for mode, config in self._modes.items())})"


def _mode_config(config: SaveConfigMode | Mapping[str, Any]) -> SaveConfigMode:
    if isinstance(config, SaveConfigMode):
        return config
    if isinstance(config, Mapping):
        try:
            return SaveConfigMode(**config)
        except TypeError as exc:
            raise ConfigurationError(f"unknown key in a mode's save configuration: {exc}") from None
    raise ConfigurationError(f"a mode's save configuration must be a SaveConfigMode or a dictionary, not {config!r}")


def _integer(name: str, value: Any, least: int = 0) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = None
    # int() would round 2.5 down and take True for 1.
    if number is None or isinstance(value, bool) or (not isinstance(value, str) and number != value):
        raise ConfigurationError(f"{name} must be an integer, not {value!r}")
    if number < least:
        raise ConfigurationError(f"{name} must be at least {least}, not {number}")
    return number


def _parts(value: Iterable[int | str] | str | None) -> Iterable[int | str]:
    if value is None:
        return ()
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value
