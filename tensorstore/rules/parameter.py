"""The typed parameters of a rule, with defaults and documentation. Values may be strings."""

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
    """The declaration of a parameter, as a class attribute of a rule. Instances have the value under the same name."""

    type_name: str
    """The type of the parameter, for the documentation."""
    default: Any
    text: str
    """One line of documentation."""
    parse: Callable[[Any], Any]
    """Returns the parsed value of an argument, or raises ValueError."""
    accepted: str
    """The description of accepted values, for the error message."""

    def value(self, rule: str, name: str, value: Any) -> Any:
        """Return the parsed value of an argument. Raises InvalidRuleParameter."""
        # An empty string means None, but only for parameters whose default is None.
        is_empty = isinstance(value, str) and value.strip().lower() in _NOT_SET
        if value is None or (is_empty and self.default is None):
            return self.of_default()
        try:
            return self.parse(value)
        except (ValueError, TypeError, OverflowError) as exc:
            reason = f" ({exc})" if isinstance(exc, ConfigurationError) else ""
            raise InvalidRuleParameter(rule, name, value, f"{self.accepted} is accepted{reason}") from None

    def of_default(self) -> Any:
        """Return the value of the default."""
        return None if self.default is None else self.parse(self.default)


# Functions that declare a parameter. They return Any, so that a rule can annotate the type of the value.


def number(default: float | None, text: str, least: float = -math.inf, most: float = math.inf) -> Any:
    """Declare a number. NaN is refused."""

    def parse(value: Any) -> float:
        if isinstance(value, bool):
            raise ValueError
        return _within(float(value), least, most)

    return Parameter("number", default, text, parse, f"a number{_range(least, most)}")


def integer(default: int | None, text: str, least: int = 0) -> Any:
    """Declare an integer of at least `least`."""

    def parse(value: Any) -> int:
        found = int(value)
        if isinstance(value, bool) or (not isinstance(value, str) and found != value):
            raise ValueError
        return int(_within(found, least, math.inf))

    return Parameter("integer", default, text, parse, f"an integer{_range(least, math.inf)}")


def flag(default: bool, text: str) -> Any:
    """Declare a truth value."""
    return Parameter("true or false", default, text, lambda value: boolean("it", value), "true or false")


def text(default: str | None, text: str) -> Any:
    """Declare a string."""
    return Parameter("text", default, text, _string, "a string")


def words(default: str | None, text: str) -> Any:
    """Declare a comma-separated list of names."""
    return Parameter("names, comma-separated", default, text, lambda value: tuple(_parts(value)), "a list of names")


def numbers(default: str | None, text: str) -> Any:
    """Declare a comma-separated list of numbers."""

    def parse(value: Any) -> tuple[float, ...]:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            value = [value]
        return tuple(_within(float(part), -math.inf, math.inf) for part in _parts(value))

    return Parameter("numbers, comma-separated", default, text, parse, "a list of numbers")


def regexes(default: str | None, text: str) -> Any:
    """Declare a comma-separated list of regular expressions. One with a comma needs a Python or JSON list."""

    def parse(value: Any) -> tuple[str, ...]:
        parts = tuple(_parts(value))
        for part in parts:
            try:
                re.compile(part)
            except re.error as exc:
                raise ConfigurationError(f"{part!r}: {exc}") from None
        return parts

    return Parameter("regular expressions, comma-separated", default, text, parse, "a list of regular expressions")


def mode(default: str | None, text: str) -> Any:
    """Declare a mode, as a name, a number or a member of ModeKeys."""
    names = ", ".join(member.name for member in ModeKeys)
    return Parameter("mode", default, text, _mode, f"one of {names}")


def parameters_of(rule_class: type) -> dict[str, Parameter]:
    """Return the parameters that a class and its bases declare, in order, those of the bases first."""
    return {
        name: value
        for base in reversed(rule_class.__mro__)
        for name, value in vars(base).items()
        if isinstance(value, Parameter)
    }


def signature(parameters: Mapping[str, Parameter]) -> inspect.Signature:
    """Return the signature of a rule's constructor, for `help` and editors."""
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter(name, positional, default=each.default) for name, each in parameters.items()]
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Signature(
        [
            inspect.Parameter("base_trial", positional),
            *own,
            inspect.Parameter("action_str", keyword, default=""),
            inspect.Parameter("other_trials", keyword, default=None),
        ]
    )


def bind(
    rule: str, parameters: Mapping[str, Parameter], args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the value of every parameter. Raises InvalidRuleParameter for an unknown one or a value not accepted."""
    if len(args) > len(parameters):
        raise InvalidRuleParameter(rule, "(by position)", args[len(parameters)], f"it takes {', '.join(parameters)}")
    named = {**dict(zip(parameters, args, strict=False)), **keywords}
    for name, value in named.items():
        if name not in parameters:
            near = get_close_matches(name, parameters, n=1, cutoff=0.0)
            known = f"did you mean {near[0]!r}? It takes {', '.join(parameters)}" if near else "it takes no parameters"
            raise InvalidRuleParameter(rule, name, value, f"it is unknown; {known}")
    return {
        name: each.value(rule, name, named[name]) if name in named else each.of_default()
        for name, each in parameters.items()
    }


def _parts(value: str | Iterable[Any]) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    parts = list(value)
    if any(isinstance(part, (bytes, bool)) or part is None for part in parts):
        raise ValueError
    return [str(part) for part in parts]


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _mode(value: Any) -> ModeKeys:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    return ModeKeys.parse(value.strip() if isinstance(value, str) else value)


def _within(value: float, least: float, most: float) -> float:
    if not least <= value <= most:  # also true for NaN
        raise ValueError
    return value


def _range(least: float, most: float) -> str:
    if math.isinf(least) and math.isinf(most):
        return ""
    if math.isinf(most):
        return f" of at least {least:g}"
    return f" from {least:g} to {most:g}" if not math.isinf(least) else f" of at most {most:g}"
