"""The configuration file of a launched script: a hook's arguments as JSON, or SageMaker's configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from tensortrial.config.collection import Collection, check_collection_name
from tensortrial.config.reduction_config import ReductionConfig, names
from tensortrial.config.save_config import SaveConfig, with_save_config
from tensortrial.errors import ConfigurationError
from tensortrial.suggestions import near_names

from ..core.configuration.json_config import HookConfiguration, errors_naming, is_sagemakers, read_configuration
from ..core.configuration.options import HookOptions
from ..core.configuration.sagemaker import read_document

_COLLECTIONS = "collections"
# The arguments of PyTorch's hook are included.
_ARGUMENTS = [*(each.name for each in fields(HookOptions) if each.init), "gradients", "full_tensors"]
_OF_COLLECTION = ("include_regex", "save_config", "reduction_config", "save_histogram")


def read_launch_configuration(path: str, out_dir: str | None) -> HookConfiguration:
    """Read the configuration of a launched script.

        {"out_dir": "runs/x", "include_collections": ["gradients"], "save_config": {"save_interval": 10},
         "collections": {"relu": {"include_regex": "relu.*_output", "reduction_config": {"reductions": "mean,std"}}}}

    Args:
        path: The file.
        out_dir: The folder or URL of the run, which takes precedence over the file's.

    Raises:
        ConfigurationError: The file is missing, is not JSON, or has an unknown key or a bad value. The message names
            the file.
    """
    with errors_naming(path):
        document = read_document(path)
        if not is_sagemakers(document):
            return _parse(document)
    return read_configuration(path, out_dir)


def _parse(document: Mapping[str, Any]) -> HookConfiguration:
    _check_keys(document, [*_ARGUMENTS, _COLLECTIONS], "")
    arguments = {key: value for key, value in document.items() if key != _COLLECTIONS}
    with_save_config(arguments)  # checks them
    _convert_configs(arguments)
    collections = document.get(_COLLECTIONS) or {}
    if not isinstance(collections, dict) or not all(isinstance(each, dict) for each in collections.values()):
        raise ConfigurationError(f"{_COLLECTIONS} must be an object of objects by name, got {collections!r:.200}")
    if collections:
        arguments["include_collections"] = [*names(arguments.get("include_collections")), *collections]
    return HookConfiguration(arguments, [_collection(name, dict(own)) for name, own in collections.items()])


def _collection(name: str, own: dict[str, Any]) -> Collection:
    check_collection_name(name)
    _check_keys(own, _OF_COLLECTION, f" of collection {name!r}")
    _convert_configs(own)
    return Collection(name, **{**own, "include_regex": names(own.get("include_regex"))})


def _convert_configs(values: dict[str, Any]) -> None:
    if values.get("save_config") is not None:
        values["save_config"] = SaveConfig.parse(values["save_config"])
    form = values.get("reduction_config")
    if form is not None:
        if not isinstance(form, (dict, list, str)):
            raise ConfigurationError(f"reduction_config must be an object or a list of statistics, got {form!r:.200}")
        try:
            parsed = ReductionConfig.from_dict(form) if isinstance(form, dict) else ReductionConfig.from_names(form)
        except TypeError as exc:
            raise ConfigurationError(f"reduction_config: {exc}") from exc
        values["reduction_config"] = parsed


def _check_keys(document: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for key in document:
        if key not in known:
            near = near_names(key, known)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigurationError(f"unknown key {key!r}{where}; {meant}Known keys: {', '.join(known)}")
