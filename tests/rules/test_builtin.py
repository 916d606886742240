"""What all built-in rules share: missing tensors, repeated steps, selection, and their documentation."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.rule_runs import Write, fired
from tensortrial import rules
from tensortrial.errors import ConfigurationError, InsufficientInformationForRuleInvocation
from tensortrial.rules import invoke_rule


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (rules.VanishingGradient, r"include_collections=\['gradients'\]"),
        (rules.DeadRelu, r"include_regex="),
        (rules.WeightUpdateRatio, r"include_collections=\['weights'\]"),
        (rules.LossNotDecreasing, r"include_collections=\['losses'\]"),
        (rules.Confusion, r"include_collections=\['labels'\]"),
        (rules.ClassImbalance, r"include_regex=\['\.\*labels'\]"),
        (rules.TreeDepth, r"include_collections=\['trees'\]"),
        (rules.FeatureImportanceOverweight, "include_regex"),
        (rules.CheckInputImages, "include_regex"),
        (rules.NLPSequenceRatio, "include_regex"),
        (rules.Overfit, r"include_collections=\['losses'\]"),
        (rules.GradientNormSpike, r"include_collections=\['gradients'\]"),
        (rules.PoorWeightInitialization, r"include_collections=\['gradients', 'losses'\]"),
        (rules.RankDivergence, r"include_collections="),
        (rules.ReplicaDivergence, r"include_collections="),
    ],
)
def test_a_run_without_the_tensors_says_how_to_save_them(write: Write, make: Any, advice: str) -> None:
    trial = write([{"something": np.ones(3)}] * 3)
    with pytest.raises(InsufficientInformationForRuleInvocation, match=advice) as raised:
        invoke_rule(make(trial))
    assert raised.value.rule_name == make.__name__


@pytest.mark.parametrize(
    ("make", "collection", "advice"),
    [
        (rules.VanishingGradient, "gradients", r"ReductionConfig\(abs_reductions=\['mean'\]\)"),
        (rules.GradientNormSpike, "gradients", r"ReductionConfig\(norms=\['l2'\]\)"),
        (rules.WeightUpdateRatio, "weights", r"ReductionConfig\(save_raw_tensor=True\)"),
        (rules.ExplodingTensor, "gradients", r"ReductionConfig\(reductions=\['nan_count', 'inf_count'\]\)"),
    ],
)
def test_missing_statistics_are_named_with_the_setting_that_saves_them(
    write: Write, make: Any, collection: str, advice: str
) -> None:
    trial = write([{"a": np.ones(3)}] * 2, raw=False, statistics=("median",), collections=(collection,))
    with pytest.raises(InsufficientInformationForRuleInvocation, match=advice):
        invoke_rule(make(trial))


def test_a_rule_forgets_earlier_steps_when_a_step_is_evaluated_again(write: Write) -> None:
    trial = write([{"labels": np.repeat([0, 1], [99, 1])}] * 5)
    rule = rules.ClassImbalance(trial)
    assert fired(invoke_rule(rule)) == fired(invoke_rule(rule)) == [4]


def test_selectors_are_a_union(write: Write) -> None:
    values = {"a": ({"collections": ("mine",)}, np.zeros(2)), "b": np.zeros(2), "c": np.zeros(2)}
    trial = write([values])
    found = invoke_rule(rules.AllZero(trial, collection_names="mine, nothing", tensor_regex="^b$"))
    assert [f.tensor for f in found] == ["a", "b"]
    for make in (rules.AllZero, rules.UnchangedTensor):
        with pytest.raises(ConfigurationError, match="must select tensors"):
            make(trial)


def test_the_page_on_rules_is_generated_from_them() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = runpy.run_path(str(docs / "site" / "rules_page.py"))["page"]
    text = (docs / "rules.md").read_text(encoding="utf-8")
    assert page(text) == text, "run: python docs/site/rules_page.py"


def test_the_page_on_migrating_lists_the_rules_of_sagemaker_with_their_parameters() -> None:
    from tensortrial.rules.registry import SAGEMAKER

    text = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text(encoding="utf-8")
    assert text.split("\n## ")[1].startswith("Its rules\n\n|"), "it is the first thing on the page"
    for rule in SAGEMAKER:
        parameters = ", ".join(f"`{name}`" for name in rule.PARAMETERS)
        assert f"| [`{rule.__name__}`](rules.md#{rule.__name__.lower()}) | {parameters} |" in text
