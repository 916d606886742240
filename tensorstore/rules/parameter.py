"""The parameters of a rule: typed, with a default and a line of documentation, given as strings or as they are."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from ..config.reduction_config import boolean
from ..errors import ConfigurationError, InvalidRuleParameter
from ..mode import ModeKeys

_NOT_SET = ("", "none", "null")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a rule. As a class attribute it declares it; instances have the value under the same name."""

    kind: str
    """What it holds, for the documentation."""
    default: Any
    text: str
    """One line of documentation."""
    parse: Callable[[Any], Any]
    """Gives the value of whatever is given, or raises ValueError."""
    accepted: str
    """What is accepted, for the error."""

    def value(self, rule: str, name: str, given: Any) -> Any:
        """The value of what was given. Raises InvalidRuleParameter."""
        # What has a default cannot be switched off by an empty string; what has none can.
        is_empty = isinstance(given, str) and given.strip().lower() in _NOT_SET
        if given is None or (is_empty and self.default is None):
            return self.of_default()
        try:
            return self.parse(given)
        except (ValueError, TypeError, OverflowError) as exc:
            reason = f" ({exc})" if isinstance(exc, ConfigurationError) else ""
            raise InvalidRuleParameter(rule, name, given, f"{self.accepted} is accepted{reason}") from None

    def of_default(self) -> Any:
        return None if self.default is None else self.parse(self.default)


# Each of these declares a parameter. They return Any so that a rule can annotate what its instances hold.


def number(default: float | None, text: str, least: float = -math.inf, most: float = math.inf) -> Any:
    """A number; NaN is refused."""

    def parse(given: Any) -> float:
        if isinstance(given, bool):
            raise ValueError
        return _within(float(given), least, most)

    return Parameter("number", default, text, parse, f"a number{_range(least, most)}")


def integer(default: int | None, text: str, least: int = 0) -> Any:
    """A whole number of at least `least`."""

    def parse(given: Any) -> int:
        found = int(given)
        if isinstance(given, bool) or (not isinstance(given, str) and found != given):
            raise ValueError
        return int(_within(found, least, math.inf))

    return Parameter("integer", default, text, parse, f"an integer{_range(least, math.inf)}")


def flag(default: bool, text: str) -> Any:
    """True or false."""
    return Parameter("true or false", default, text, lambda given: boolean("it", given), "true or false")


def text(default: str | None, text: str) -> Any:
    """A string, taken as it is."""
    return Parameter("text", default, text, _string, "a string")


def words(default: str | None, text: str) -> Any:
    """A comma-separated list of names."""
    return Parameter("names, comma-separated", default, text, lambda given: tuple(_parts(given)), "a list of names")


def numbers(default: str | None, text: str) -> Any:
    """A comma-separated list of numbers."""

    def parse(given: Any) -> tuple[float, ...]:
        if isinstance(given, (int, float)) and not isinstance(given, bool):
            given = [given]
        return tuple(_within(float(part), -math.inf, math.inf) for part in _parts(given))

    return Parameter("numbers, comma-separated", default, text, parse, "a list of numbers")


def regexes(default: str | None, text: str) -> Any:
    """A comma-separated list of regular expressions; one that holds a comma must be given in a Python or JSON list."""

    def parse(given: Any) -> tuple[str, ...]:
        parts = tuple(_parts(given))
        for part in parts:
            try:
                re.compile(part)
            except re.error as exc:
                raise ConfigurationError(f"{part!r}: {exc}") from None
        return parts

    return Parameter("regular expressions, comma-separated", default, text, parse, "a list of regular expressions")


def mode(default: str | None, text: str) -> Any:
    """A mode, by name, number or member."""
    names = ", ".join(member.name for member in ModeKeys)
    return Parameter("mode", default, text, _mode, f"one of {names}")


def parameters_of(kind: type) -> dict[str, Parameter]:
    """The parameters that a class and its bases declare, in the order of declaration, those of the bases first."""
    return {
        name: value
        for base in reversed(kind.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, Parameter)
    }


def signature(parameters: Mapping[str, Parameter]) -> inspect.Signature:
    """What `help` and an editor show of a rule's constructor."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter(name, kind, default=each.default) for name, each in parameters.items()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter("base_trial", kind),
            *own,
            inspect.Parameter("action_str", keyword, default=""),
            inspect.Parameter("other_trials", keyword, default=None),
        ]
    )


def bind(
    rule: str, parameters: Mapping[str, Parameter], args: tuple[Any, ...], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The value of every parameter. Raises InvalidRuleParameter for an unknown one and for a value not accepted."""
    if len(args) > len(parameters):
        raise InvalidRuleParameter(rule, "(by position)", args[len(parameters)], f"it takes {', '.join(parameters)}")
    named = {**dict(zip(parameters, args, strict=False)), **given}
    for name, value in named.items():
        if name not in parameters:
            near = get_close_matches(name, parameters, n=1, cutoff=0.0)
            known = f"did you mean {near[0]!r}? It takes {', '.join(parameters)}" if near else "it takes no parameters"
            raise InvalidRuleParameter(rule, name, value, f"there is no such parameter; {known}")
    return {
        name: each.value(rule, name, named[name]) if name in named else each.of_default()
        for name, each in parameters.items()
    }


def _parts(given: str | Iterable[Any]) -> list[str]:
    if isinstance(given, str):
        return [part.strip() for part in given.split(",") if part.strip()]
    parts = list(given)
    if any(isinstance(part, (bytes, bool)) or part is None for part in parts):
        raise ValueError
    return [str(part) for part in parts]


def _string(given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError
    return given


def _mode(given: Any) -> ModeKeys:
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given)
    return ModeKeys.parse(given.strip() if isinstance(given, str) else given)


def _within(value: float, least: float, most: float) -> float:
    if not least <= value <= most:  # so also for NaN
        raise ValueError
    return value


def _range(least: float, most: float) -> str:
    if math.isinf(least) and math.isinf(most):
        return ""
    if math.isinf(most):
        return f" of at least {least:g}"
    return f" from {least:g} to {most:g}" if not math.isinf(least) else f" of at most {most:g}"
