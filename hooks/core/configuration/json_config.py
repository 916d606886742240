"""The JSON configuration of a hook, as SageMaker writes it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from tensortrial.config.collection import Collection, CollectionKeys, check_collection_name
from tensortrial.config.reduction_config import ReductionConfig, boolean, names
from tensortrial.config.save_config import STEP_ARGUMENTS, SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration
from tensortrial.mode import ModeKeys

from ..log import logger
from . import sagemaker
from .collections import CollectionManager

_TOP = ("LocalPath", "S3OutputPath", "HookParameters", "CollectionConfigurations")
_COLLECTION = ("CollectionName", "CollectionParameters")
_MODE_WHEN = tuple(f"{mode.name.lower()}.{key}" for mode in ModeKeys for key in STEP_ARGUMENTS)
_FORM = ("reductions", "save_raw_tensor", "save_shape", "digest", "axis", "quantiles")
_SHARED = (*STEP_ARGUMENTS, *_MODE_WHEN, *_FORM, "include_regex")
_FLAGS = ("save_all", "dry_run", "export_tensorboard", "resume", "force", "durable")
_HOOK = (*_SHARED, *_FLAGS, "include_workers", "tensorboard_dir", "on_exists", "system_metrics")
_OF_COLLECTION = (*_SHARED, "save_histogram")
_LISTS = ("save_steps", "reductions", "include_regex")


@dataclass(frozen=True)
class HookConfiguration:
    """The configuration of a hook in a JSON file."""

    arguments: Mapping[str, Any]
    """The arguments for the hook's constructor."""
    collections: list[Collection] = field(default_factory=list)
    """The collections to save, each with its own configuration."""

    def apply_to(self, collections: CollectionManager) -> None:
        """Configure the collections, and add them to the saved ones."""
        for entry in self.collections:
            collection = collections.require(entry.name)
            collection.include(entry.include_regex)
            collection.save_config = entry.save_config
            collection.save_histogram = entry.save_histogram
            if entry.reduction_config is not None:
                collection.reduction_config = entry.reduction_config
        collections.choose(entry.name for entry in self.collections)


def read_configuration(path: str | None = None, out_dir: str | None = None) -> HookConfiguration:
    """Read the configuration of a hook.

    A later layer overrides an earlier one, key by key: the hook's plain keys, the hook's keys with a mode
    (`train.save_interval`), the collection's plain keys, the collection's keys with a mode. An unknown key is logged
    with the nearest known one, and ignored.

    Args:
        path: The file. Default: the path in SMDEBUG_CONFIG_FILE_PATH, else SageMaker's.
        out_dir: The folder or URL to save to, in place of the file's.

    Raises:
        ConfigurationError: The file is missing, is not JSON, or has a bad value. The message names the file.
    """
    path = path or sagemaker.hook_configuration_path()
    with errors_naming(path):
        document = sagemaker.read_document(path)
        _warn_of_unknown_keys(document, _TOP, path)
        return _parse(document, path, out_dir)


def is_sagemakers(document: Mapping[str, Any]) -> bool:
    """Return whether a configuration is one as SageMaker writes it."""
    return not document.keys().isdisjoint(_TOP)


@contextmanager
def errors_naming(path: str) -> Iterator[None]:
    """Name the file of a configuration in each error inside the block."""
    try:
        yield
    except OSError as exc:
        raise ConfigurationError(f"{path}: the hook's configuration cannot be read: {exc.strerror}") from exc
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise ConfigurationError(f"{path}: the hook's configuration is not JSON: {exc}") from exc
    except InvalidCollectionConfiguration as exc:
        reason = str(exc).removeprefix(f"collection {exc.name!r}: ")
        raise InvalidCollectionConfiguration(exc.name, f"{reason} (in {path})") from exc
    except ConfigurationError as exc:
        raise ConfigurationError(f"{path}: {exc}") from exc


def _parse(document: Mapping[str, Any], path: str, out_dir: str | None) -> HookConfiguration:
    hook = _parameters(document, "HookParameters", _HOOK, path)
    exports, tensorboard_dir = sagemaker.tensorboard_output()
    arguments = {
        "out_dir": out_dir or document.get("LocalPath") or sagemaker.output_folder(document.get("S3OutputPath")),
        "save_config": _save_config(hook),
        "reduction_config": _reduction_config(hook),
        "include_regex": Collection(CollectionKeys.DEFAULT, names(hook.get("include_regex"))).include_regex,
        "include_workers": hook.get("include_workers", "one"),
        "tensorboard_dir": tensorboard_dir or hook.get("tensorboard_dir"),
        **{name: boolean(name, hook.get(name, False)) for name in _FLAGS},
        **{name: hook[name] for name in ("on_exists", "system_metrics") if name in hook},
    }
    arguments["export_tensorboard"] |= exports
    arguments["resume"] |= sagemaker.continues_from_checkpoint()
    configurations = document.get("CollectionConfigurations") or []
    if not isinstance(configurations, list):
        raise ConfigurationError(f"CollectionConfigurations must be a list, got {configurations!r:.200}")
    return HookConfiguration(arguments, [_collection(entry, hook, path) for entry in configurations])


def _collection(entry: Any, hook: Mapping[str, Any], path: str) -> Collection:
    if not isinstance(entry, dict) or not entry.get("CollectionName"):
        raise ConfigurationError(f"each entry of CollectionConfigurations needs a CollectionName, got {entry!r:.200}")
    name = entry["CollectionName"]
    check_collection_name(name)
    _warn_of_unknown_keys(entry, _COLLECTION, f"CollectionConfigurations ({name!r}) of {path}")
    try:
        own = _parameters(entry, "CollectionParameters", _OF_COLLECTION, path)
        form, steps, histogram = _reduction_config(own), _save_config(hook, own), own.get("save_histogram")
        return Collection(name, names(own.get("include_regex")), None, form, steps, histogram)
    except InvalidCollectionConfiguration:
        raise
    except ConfigurationError as exc:
        raise InvalidCollectionConfiguration(name, str(exc)) from exc


def _parameters(entry: Mapping[str, Any], key: str, known: Sequence[str], path: str) -> Mapping[str, Any]:
    """Return the known parameters that have a value."""
    parameters = {} if entry.get(key) is None else entry[key]
    if not isinstance(parameters, dict):
        raise ConfigurationError(f"{key} must be a JSON object, got {parameters!r:.200}")
    _warn_of_unknown_keys(parameters, known, f"{key} of {path}")
    given = {name: _only(name, parameters[name]) for name in parameters if name in known}
    return {name: value for name, value in given.items() if value is not None}


def _only(name: str, value: Any) -> Any:
    """Return the intended value: the only element of a list if one value is expected, None for "None" and ""."""
    if name.rpartition(".")[2] in _LISTS:
        return _elements(value, str if name == "include_regex" else object)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return None if isinstance(value, str) and value.strip().lower() in ("", "none", "null") else value


def _elements(value: Any, kind: type[Any]) -> Any:
    """Return the list that Python or JSON wrote as text, such as "[0, 10]"; any other value unchanged."""
    if not isinstance(value, str) or not value.strip().startswith("["):
        return value
    try:
        found = ast.literal_eval(value.strip())
    except (ValueError, SyntaxError):
        return value  # a regular expression
    return found if isinstance(found, list) and all(isinstance(each, kind) for each in found) else value


def _save_config(*layers: Mapping[str, Any]) -> SaveConfig:
    """Merge layers, from low to high: each layer's plain keys, then its keys with a mode."""
    by_mode: dict[ModeKeys, dict[str, Any]] = {mode: {} for mode in ModeKeys}
    for layer in layers:
        for mode, values in by_mode.items():
            values.update({key: layer[key] for key in STEP_ARGUMENTS if key in layer})
            prefix = f"{mode.name.lower()}."
            values.update({key: layer[prefix + key] for key in STEP_ARGUMENTS if prefix + key in layer})
    return SaveConfig({mode: SaveConfigMode(**values) for mode, values in by_mode.items()})


def _reduction_config(layer: Mapping[str, Any]) -> ReductionConfig | None:
    if not any(key in layer for key in _FORM):
        return None
    options = {key: layer[key] for key in _FORM[1:] if key in layer}
    return ReductionConfig.from_names(layer.get("reductions"), **options)


def _warn_of_unknown_keys(layer: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in layer:
        if key not in known:
            near = get_close_matches(key, known, n=1, cutoff=0.0)
            logger.warning("the key %r in %s is unknown and ignored; did you mean %r?", key, where, near[0])
