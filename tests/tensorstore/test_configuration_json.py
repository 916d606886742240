"""Configurations as JSON: text and dictionaries, there and back."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tensortrial.config.collection import Collection
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration
from tensortrial.mode import modes

SAVE = SaveConfig({modes.TRAIN: SaveConfigMode(3, save_steps=[7]), modes.EVAL: {"end_step": 5}})
REDUCE = ReductionConfig(["min"], ["mean"], ["l2"], save_raw_tensor=True)
BY_AXIS = ReductionConfig(norms=["l2"], digest=True, axis=0, quantiles=True)
CONFIGURATIONS = [SAVE, REDUCE, BY_AXIS, Collection("mine", "relu", ["x"], REDUCE, SAVE, save_histogram=True)]


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=lambda each: type(each).__name__)
def test_a_configuration_is_the_same_after_json(configuration: Any) -> None:
    text = configuration.to_json()
    assert isinstance(text, str)
    assert type(configuration).from_json(text) == configuration
    assert json.loads(text) == configuration.to_json_dict()
    assert type(configuration).from_dict(configuration.to_json_dict()) == configuration


def test_reductions_of_all_kinds_are_read_from_one_list() -> None:
    document = {"reductions": "min,abs_mean,l2", "save_raw_tensor": True}
    assert ReductionConfig.from_dict(document) == REDUCE


def test_an_axis_is_read_with_a_list_of_all_kinds() -> None:
    expected = ReductionConfig(["min"], norms=["l2"], axis=-1)
    assert ReductionConfig.from_dict({"reductions": "min,l2", "axis": "-1"}) == expected
    assert ReductionConfig.from_names(["min", "l2"], axis=-1) == expected
    assert repr(BY_AXIS) == "ReductionConfig(norms=['l2'], digest=True, axis=0, quantiles=True)"


@pytest.mark.parametrize("argument", ["include_regex", "tensor_names"])
@pytest.mark.parametrize(("wrong", "shown"), [(5, "5"), (["relu", 5], "5"), (True, "True"), (b"relu", "114")])
def test_a_collection_refuses_what_is_no_text(argument: str, wrong: Any, shown: str) -> None:
    expected = f"collection 'mine': {argument} must be one text or several, got {shown}"
    with pytest.raises(InvalidCollectionConfiguration, match=expected):
        Collection("mine", **{argument: wrong})
    collection = Collection("mine")
    with pytest.raises(InvalidCollectionConfiguration, match=expected):
        (collection.include if argument == "include_regex" else collection.add_tensor_names)(wrong)
    assert collection.is_empty


@pytest.mark.parametrize("axis", ["x", 1.5, True])
def test_what_is_no_axis_is_refused(axis: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"axis must be an integer or None, got {axis!r}"):
        ReductionConfig(norms=["l2"], axis=axis)


def test_an_axis_without_statistics_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="axis=0 needs statistics"):
        ReductionConfig(axis=0)


def test_a_mode_that_is_none_is_that_of_the_hook() -> None:
    config = SaveConfig.from_dict({"TRAIN": {"save_interval": 4}, "EVAL": None})
    config.inherit(SaveConfig(save_interval=9))
    assert config.mode_save_configs[modes.TRAIN].save_interval == 4
    assert config.mode_save_configs[modes.EVAL].save_interval == 9


@pytest.mark.parametrize("kind", [SaveConfig, ReductionConfig, Collection])
@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null", '"x"', "[" * 100_000])
def test_text_that_is_no_configuration_is_refused(kind: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"this is not the JSON of a {kind.__name__}: "):
        kind.from_json(text)


def test_json_that_lacks_a_key_or_has_another_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it lacks 'name'"):
        Collection.from_json("{}")
    with pytest.raises(ConfigurationError, match="unexpected keyword argument 'kind'"):
        ReductionConfig.from_json('{"kind": 1}')


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"save_interval": float("inf")}, "save_interval must be an integer or 'growing', got inf"),
        ({"save_interval": 2, "kind": 1}, "unknown key in a save configuration: .*'kind'"),
        ({"TRAIN": {"kind": 1}}, "unknown key in a mode's save configuration: .*'kind'"),
        ({"training": {"save_interval": 1}}, "'training'"),
        ({"save_interval": 2.5}, "save_interval must be an integer or 'growing', got 2.5"),
        ({"start_step": 5, "end_step": 5}, "end_step"),
        ({"save_steps": ["x"]}, "save_steps"),
    ],
)
def test_a_save_configuration_with_a_wrong_value_is_refused(value: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        SaveConfig.parse(value)


def test_a_collection_takes_one_name() -> None:
    collection = Collection("mine", tensor_names="loss")
    collection.add_tensor_name("x")
    collection.add_tensor_names("yz")
    assert collection.tensor_names == {"loss", "x", "yz"}
    collection.tensor_names = "w"
    assert collection.tensor_names == {"w"}


def test_a_growing_interval_saves_the_same_steps_after_json() -> None:
    growing = SaveConfig(save_interval="growing", end_step=30_001)
    expected = [*range(10), *range(10, 100, 10), *range(100, 1000, 50), *range(1000, 10_000, 100)]
    expected += range(10_000, 30_001, 500)
    for config in (growing, SaveConfig.from_json(growing.to_json()), growing.copy()):
        assert [step for step in range(40_000) if config.should_save_step(modes.TRAIN, step)] == expected
    assert SaveConfig.parse({"save_interval": "Growing"}) == SaveConfig(save_interval="growing")
    for wrong in ("shrinking", "x1", "2.5"):
        with pytest.raises(ConfigurationError, match=f"must be an integer or 'growing', got '{wrong}'"):
            SaveConfig(save_interval=wrong)


@pytest.mark.parametrize("wrong", [10, [1], "10"])
def test_an_interval_in_the_place_of_the_modes_is_named(wrong: Any) -> None:
    sentence = re.escape(f"mode_save_configs must be a dictionary by mode, got {wrong!r}; for every mode, pass")
    with pytest.raises(ConfigurationError, match=sentence + " save_interval=…"):
        SaveConfig(wrong)


def test_the_error_of_names_says_which_argument_has_them() -> None:
    for argument in ("reductions", "abs_reductions", "norms", "abs_norms"):
        with pytest.raises(ConfigurationError, match=f"^{argument} must be a list or a comma-separated string, got 5"):
            ReductionConfig(**{argument: 5})
