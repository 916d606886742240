"""The collections of a tensor: the same as by trying each pattern, without trying each."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.internals import number_of_tried_patterns
from tensortrial.config.collection import Collection
from tensortrial.hooks.core.configuration.matcher import Matcher

PATTERNS = [
    ".*",
    "",
    "a",
    "^a",
    "a$",
    "^$",
    "relu",
    "^Net_fc1.weight$",
    r"^Net_fc1\.weight$",
    "(?i)RELU",
    "(?:relu|tanh)_output",
    "relu(_output)?",
    "relu+",
    "re{2}lu",
    "[rt]elu",
    r"\brelu\b",
    "relu|tanh",
    "(relu)",
    "(?=relu)re",
    "(?<!x)relu",
    "é",
    r"layer_\d+_output",
    "output_0$",
    "(?x) re lu",
    "(?s)a.b",
    "re(?#comment)lu",
    r"\x72elu",
    r"(r)elu\1",
    "x*",
    "xy*z",
]
NAMES = [
    "",
    "a",
    "ab",
    "relu",
    "RELU",
    "reelu",
    "relur",
    "relu_output_0",
    "xrelu",
    "tanh_output_3",
    "Net_fc1.weight",
    "é",
    "Net_fc1xweight",
    "layer_12_output_0",
    "gradient/layer_3_output",
    "a\nb",
    "xz",
    "xyyz",
    "telu",
]


def by_trying(collections: list[Collection], name: str) -> list[str]:
    return [each.name for each in collections if each.matches(name)]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_matches_the_same_collections_as_by_search(name: str) -> None:
    collections = [Collection(pattern or "empty", [pattern]) for pattern in PATTERNS]
    found = [each.name for each in Matcher(collections).matching(name)]
    assert found == by_trying(collections, name)
    assert found == [pattern or "empty" for pattern in PATTERNS if re.search(pattern, name)]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(PATTERNS) | st.from_regex(r"\A[ab_.^$*+?]{0,6}\Z"), max_size=3), max_size=6),
    st.lists(st.sets(st.sampled_from(NAMES)), max_size=6),
    st.lists(st.sampled_from(NAMES) | st.text("ab_relu", max_size=12), max_size=5),
)
def test_any_names_match_any_patterns_as_by_search(
    patterns: list[list[str]], tensor_names: list[set[str]], names: list[str]
) -> None:
    collections = [Collection(f"p{index}", filter(compiles, each)) for index, each in enumerate(patterns)]
    collections += [Collection(f"n{index}", tensor_names=each) for index, each in enumerate(tensor_names)]
    matcher = Matcher(collections)
    for name in names:
        assert [each.name for each in matcher.matching(name)] == by_trying(collections, name)


def compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def test_only_a_few_of_thousands_of_patterns_are_tried() -> None:
    matcher = Matcher([Collection(f"c{number}", f"^layer_{number}/") for number in range(5000)])
    for number in random.Random(1).sample(range(5000), 100):
        name = f"layer_{number}/weight"
        assert [each.name for each in matcher.matching(name)] == [f"c{number}"]
        assert number_of_tried_patterns(matcher, name) < 100
