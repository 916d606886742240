"""Configurations of rules, from a command line or from a JSON or TOML file."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError, UnknownRule
from ..read.trial import Trial
from .registry import make_rule, rule_class
from .rule import Rule

_LISTS = ("DebugRuleConfigurations", "rules")
_KEYS = ("RuleConfigurationName", "RuleParameters", "rule", "name", "parameters", "actions")
# SageMaker's keys for the machine of a rule, and for its folders, which are ignored.
_IGNORED = ("RuleEvaluatorImage", "InstanceType", "VolumeSizeInGB", "LocalPath", "S3OutputPath")
_NOT_PARAMETERS = ("base_trial", "rule_to_invoke", "action_json")
_NOT_HERE = ("source_s3_uri", "source")


@dataclass(frozen=True)
class RuleConfiguration:
    """The configuration of one rule.

    Attributes:
        rule: Name of a built-in rule.
        parameters: Its parameters.
        actions: Actions to execute when it fires, in any form that `action_str` of a rule accepts.
        name: Name of its findings; None for the name of the rule.
    """

    rule: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    actions: Any = ""
    name: str | None = None

    def make(self, trial: Trial) -> Rule:
        """Create the rule.

        Raises:
            UnknownRule: There is no such rule.
            InvalidRuleParameter: The rule has no such parameter, or does not accept its value.
            ConfigurationError: An action is unknown, or its arguments are wrong.
        """
        return make_rule(self.rule, trial, rule_name=self.name, action_str=self.actions, **self.parameters)


def parse_rule(text: str) -> RuleConfiguration:
    """Parse `Name` or `Name:parameter=value,parameter=value`.

    A part without `=` belongs to the previous value, so that lists are written as
    `Name:collection_names=weights,biases`.
    """
    name, _, rest = text.partition(":")
    parameters: dict[str, str] = {}
    last = None
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if equals and key.strip().isidentifier():
            last = key.strip()
            parameters[last] = value
        elif last is None:
            raise ConfigurationError(f"rule {text!r}: write parameter=value after the colon, got {part!r}")
        else:
            parameters[last] += f",{part}"
    rule_class(name.strip())
    return RuleConfiguration(name.strip(), parameters)


def read_rules(path: str | os.PathLike[str]) -> list[RuleConfiguration]:
    """Read the configurations of rules in a file.

    The file holds a list of rules, or an object with such a list under `rules` or `DebugRuleConfigurations`. Each rule
    is `{"rule": "DeadRelu", "name": …, "parameters": {…}, "actions": […]}`, or as SageMaker writes it:
    `{"RuleConfigurationName": …, "RuleParameters": {"rule_to_invoke": "DeadRelu", …}}`, with actions as JSON text under
    `action_json`.

    Args:
        path: A TOML file, if its name ends in `.toml`, otherwise a JSON file.

    Returns:
        The configurations, in the order of the file.

    Raises:
        ConfigurationError: The file cannot be read, or has an unknown key; the message names the file.
        UnknownRule: There is no such rule.
    """
    try:
        document = _document(Path(path))
        return [_rule(entry) for entry in _entries(document)]
    except OSError as exc:
        raise ConfigurationError(f"{path}: the rules cannot be read: {exc.strerror}") from exc
    except (json.JSONDecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ConfigurationError(f"{path}: must be JSON, or TOML with a name that ends with .toml: {exc}") from exc
    except UnknownRule:
        raise
    except ConfigurationError as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc


def _document(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)


def _entries(document: Any) -> Sequence[Any]:
    if isinstance(document, Mapping):
        lists = [key for key in _LISTS if key in document]
        if len(lists) != 1:
            raise ConfigurationError(
                f"the configuration must be a list of rules, or have one under {' or '.join(_LISTS)}"
            )
        _known(document, _LISTS, "the configuration")
        document = document[lists[0]]
    if not isinstance(document, list):
        raise ConfigurationError(f"the configuration must be a list of rules, got {type(document).__name__}")
    return document


def _rule(entry: Any) -> RuleConfiguration:
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"each rule must be an object with its name and parameters, got {entry!r}")
    _known(entry, (*_KEYS, *_IGNORED), "a rule")
    found = dict(entry.get("RuleParameters") or entry.get("parameters") or {})
    for key in _NOT_HERE:
        if found.get(key):
            raise ConfigurationError(
                f"{key}={found[key]!r}: your own rules are not downloaded; call watch(trial, [YourRule(trial)]) instead"
            )
    rule = entry.get("rule") or found.get("rule_to_invoke") or entry.get("RuleConfigurationName")
    if not isinstance(rule, str):
        raise ConfigurationError(f"missing name of a rule under rule or rule_to_invoke: {dict(entry)!r}")
    rule_class(rule)
    actions = entry.get("actions", found.get("action_json", ""))
    parameters = {key: value for key, value in found.items() if key not in (*_NOT_PARAMETERS, *_NOT_HERE)}
    return RuleConfiguration(rule, parameters, actions, entry.get("name") or entry.get("RuleConfigurationName"))


def _known(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    for key in keys:
        if key not in known:
            near = get_close_matches(key, list(known), n=1, cutoff=0.0)
            raise ConfigurationError(
                f"unknown key {key!r} in {where}; did you mean {near[0]!r}? Known keys: {', '.join(known)}"
            )
