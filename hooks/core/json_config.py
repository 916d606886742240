"""The JSON configuration of a hook, as SageMaker writes it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from tensortrial.config.collection import CollectionKeys, check_collection_name, compile_regex, regexes
from tensortrial.config.reduction_config import ReductionConfig, boolean
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration
from tensortrial.mode import ModeKeys

from .collections import CollectionManager

DEFAULT_PATH = "/opt/ml/input/config/debughookconfig.json"
PATH_VARIABLE = "SMDEBUG_CONFIG_FILE_PATH"

_TOP = ("LocalPath", "S3OutputPath", "HookParameters", "CollectionConfigurations")
_COLLECTION = ("CollectionName", "CollectionParameters")
_WHEN = ("save_interval", "save_steps", "start_step", "end_step")
_MODE_WHEN = tuple(f"{mode.name.lower()}.{key}" for mode in ModeKeys for key in _WHEN)
_FORM = ("reductions", "save_raw_tensor", "save_shape")
_SHARED = (*_WHEN, *_MODE_WHEN, *_FORM, "include_regex")
_HOOK = (*_SHARED, "dry_run", "save_all", "include_workers", "export_tensorboard", "tensorboard_dir", "resume", "force")
_OF_COLLECTION = (*_SHARED, "save_histogram")


@dataclass(frozen=True)
class CollectionConfiguration:
    """The configuration of a collection in a JSON file."""

    name: str
    include_regex: list[str]
    save_config: SaveConfig
    reduction_config: ReductionConfig | None
    save_histogram: bool | None


@dataclass(frozen=True)
class HookConfiguration:
    """The configuration of a hook in a JSON file."""

    arguments: Mapping[str, Any]
    """The arguments for the hook's constructor."""
    collections: list[CollectionConfiguration] = field(default_factory=list)
    """The collections to save, each with its own configuration."""

    def apply_to(self, collections: CollectionManager) -> None:
        """Configure the collections, and add them to those that are saved."""
        for entry in self.collections:
            collection = collections.require(entry.name)
            collection.include(entry.include_regex)
            collection.save_config = entry.save_config
            collection.save_histogram = entry.save_histogram
            if entry.reduction_config is not None:
                collection.reduction_config = entry.reduction_config
        collections.include(entry.name for entry in self.collections)


def read_configuration(path: str | None = None) -> HookConfiguration:
    """Read the configuration of a hook.

    A later layer overrides an earlier one, key by key: the hook's plain keys, the hook's keys with a mode
    (`train.save_interval`), the collection's plain keys, the collection's keys with a mode.

    Args:
        path: The file. Default: the path in SMDEBUG_CONFIG_FILE_PATH, else SageMaker's.

    Returns:
        The configuration.

    Raises:
        ConfigurationError: The file is missing, is not JSON, or has an unknown key or a bad value. The message names
            the file and, for an unknown key, the nearest known one.
    """
    path = path or os.environ.get(PATH_VARIABLE) or DEFAULT_PATH
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return _parse(document)
    except OSError as exc:
        raise ConfigurationError(f"{path}: the hook's configuration cannot be read: {exc.strerror}") from exc
    except json.JSONDecodeError as exc:
        raise ConfigurationError(f"{path}: the hook's configuration is not JSON: {exc}") from exc
    except InvalidCollectionConfiguration as exc:
        reason = str(exc).removeprefix(f"collection {exc.name!r}: ")
        raise InvalidCollectionConfiguration(exc.name, f"{reason} (in {path})") from exc
    except ConfigurationError as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc


def _parse(document: Any) -> HookConfiguration:
    if not isinstance(document, dict):
        raise ConfigurationError(f"the hook's configuration must be a JSON object, got {document!r:.200}")
    _check_keys(document, _TOP, "configuration")
    out_dir = document.get("LocalPath") or document.get("S3OutputPath")
    if not out_dir:
        raise ConfigurationError(
            "the configuration has neither LocalPath nor S3OutputPath; add one of them, the folder or URL to save to"
        )
    hook = _parameters(document, "HookParameters", _HOOK)
    arguments = {
        "out_dir": out_dir,
        "save_config": _save_config(hook),
        "reduction_config": _reduction_config(hook),
        "include_regex": _regexes(hook, CollectionKeys.DEFAULT),
        "include_workers": hook.get("include_workers", "one"),
        "save_all": boolean("save_all", hook.get("save_all", False)),
        "dry_run": boolean("dry_run", hook.get("dry_run", False)),
        "export_tensorboard": boolean("export_tensorboard", hook.get("export_tensorboard", False)),
        "tensorboard_dir": hook.get("tensorboard_dir"),
        "resume": boolean("resume", hook.get("resume", False)),
        "force": boolean("force", hook.get("force", False)),
    }
    configurations = document.get("CollectionConfigurations") or []
    if not isinstance(configurations, list):
        raise ConfigurationError(f"CollectionConfigurations must be a list, got {configurations!r:.200}")
    return HookConfiguration(arguments, [_collection(entry, hook) for entry in configurations])


def _collection(entry: Any, hook: Mapping[str, Any]) -> CollectionConfiguration:
    if not isinstance(entry, dict) or not entry.get("CollectionName"):
        raise ConfigurationError(f"each entry of CollectionConfigurations needs a CollectionName, got {entry!r:.200}")
    _check_keys(entry, _COLLECTION, "CollectionConfigurations")
    name = entry["CollectionName"]
    check_collection_name(name)
    try:
        return _named_collection(name, _parameters(entry, "CollectionParameters", _OF_COLLECTION), hook)
    except InvalidCollectionConfiguration:
        raise
    except ConfigurationError as exc:
        raise InvalidCollectionConfiguration(name, str(exc)) from exc


def _named_collection(name: str, own: Mapping[str, Any], hook: Mapping[str, Any]) -> CollectionConfiguration:
    histogram = own.get("save_histogram")
    return CollectionConfiguration(
        name,
        _regexes(own, name),
        _save_config(hook, own),
        _reduction_config(own),
        None if histogram is None else boolean("save_histogram", histogram),
    )


def _parameters(entry: Mapping[str, Any], key: str, known: Iterable[str]) -> Mapping[str, Any]:
    parameters = {} if entry.get(key) is None else entry[key]
    _check_keys(parameters, known, key)
    return parameters


def _regexes(layer: Mapping[str, Any], collection: str) -> list[str]:
    found = regexes(layer.get("include_regex"))
    for text in found:
        compile_regex(text, collection)
    return found


def _save_config(*layers: Mapping[str, Any]) -> SaveConfig:
    """Merge layers, from low to high: each layer's plain keys, then its keys with a mode."""
    by_mode: dict[ModeKeys, dict[str, Any]] = {mode: {} for mode in ModeKeys}
    for layer in layers:
        for mode, values in by_mode.items():
            values.update({key: layer[key] for key in _WHEN if key in layer})
            prefix = f"{mode.name.lower()}."
            values.update({key: layer[prefix + key] for key in _WHEN if prefix + key in layer})
    return SaveConfig({mode: SaveConfigMode(**values) for mode, values in by_mode.items()})


def _reduction_config(layer: Mapping[str, Any]) -> ReductionConfig | None:
    if not any(key in layer for key in _FORM):
        return None
    options = {key: layer[key] for key in ("save_raw_tensor", "save_shape") if key in layer}
    return ReductionConfig.from_names(layer.get("reductions"), **options)


def _check_keys(layer: Any, known: Iterable[str], where: str) -> None:
    if not isinstance(layer, dict):
        raise ConfigurationError(f"{where} must be a JSON object, got {layer!r:.200}")
    for key in layer:
        if key not in known:
            near = get_close_matches(key, list(known), n=1, cutoff=0.0)
            raise ConfigurationError(f"unknown key {key!r} in {where}; did you mean {near[0]!r}?")
