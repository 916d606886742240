"""The built-in rules on labels, predictions and inputs, on runs whose values are known."""

from __future__ import annotations

import numpy as np
import pytest

from support.rule_runs import Write, fired
from tensortrial import rules
from tensortrial.errors import InsufficientInformationForRuleInvocation, InvalidRuleParameter
from tensortrial.rules import invoke_rule


def test_class_imbalance_vector(write: Write) -> None:
    labels = np.repeat([0, 1], [990, 10])
    (finding,) = invoke_rule(rules.ClassImbalance(write([{"labels": labels}])))
    assert (finding.step, finding.observed, finding.threshold) == (0, 99.0, 10.0)


def test_class_imbalance_accumulates_and_is_silent_below_its_samples(write: Write) -> None:
    step = {"labels": np.repeat([0, 1], [99, 1])}
    assert fired(invoke_rule(rules.ClassImbalance(write([step] * 6)))) == [4, 5]


def test_a_mispredicted_class(write: Write) -> None:
    labels = np.arange(600) % 3
    scores = np.eye(3)[np.where(labels == 2, 0, labels)]
    trial = write([{"labels": labels, "predictions": scores}])
    (finding,) = invoke_rule(rules.ClassImbalance(trial, argmax="True"))
    assert finding.sentence == "labels class 2 is mispredicted in 100.0%, above 70.0%"
    assert invoke_rule(rules.ClassImbalance(trial, argmax=True, threshold_misprediction=1)) == []


def test_confusion_vector(write: Write) -> None:
    labels = np.arange(10)
    wrong = np.where(labels == 4, 7, labels)
    trial = write([{"labels": labels, "predictions": labels}, {"labels": labels, "predictions": wrong}])
    assert [(f.step, f.observed) for f in invoke_rule(rules.Confusion(trial))] == [(1, 0.0), (1, 1.0)]
    (finding,) = invoke_rule(rules.Confusion(trial, min_diag=0, max_off_diag=0.01))
    assert finding.sentence == "labels class 4 is predicted as 7 in 100.0%, above 1.0%"


def test_confusion_by_collection_scores_and_one_hot_labels(write: Write) -> None:
    labels = np.arange(10) % 5  # the other five classes have no examples
    values = {
        "a": ({"collections": ("labels",)}, np.eye(10)[labels]),
        "b": ({"collections": ("predictions",)}, np.eye(10)[labels] + 0.1),
    }
    assert invoke_rule(rules.Confusion(write([values]), category_no="10")) == []


def test_check_input_images(write: Write) -> None:
    images = np.zeros((300, 3, 4, 4), np.float32)
    images[:, 1] = 0.5
    trial = write([{"Net_input_0": images, "conv1_input_0": images + 9}] * 2)
    (finding,) = invoke_rule(rules.CheckInputImages(trial))
    assert (finding.step, finding.observed) == (1, 0.5)
    assert "channel 1 has mean 0.5 over 600 images" in finding.sentence
    assert invoke_rule(rules.CheckInputImages(trial, threshold_mean=0.6)) == []
    assert invoke_rule(rules.CheckInputImages(trial, threshold_samples=601)) == []
    with pytest.raises(InvalidRuleParameter, match="an axis of the images, 0 to 3"):
        invoke_rule(rules.CheckInputImages(trial, channel=4))


def test_check_input_images_of_one_channel_by_their_mean(write: Write) -> None:
    trial = write([{"Net_input_0": np.ones((600, 1, 2, 2))}], raw=False, statistics=("mean",))
    assert fired(invoke_rule(rules.CheckInputImages(trial))) == [0]


def test_nlp_sequence_ratio(write: Write) -> None:
    tokens = np.array([[5, 1, 0, 0], [6, 0, 0, 0]])
    trial = write([{"embedding_input_0": tokens}])
    (finding,) = invoke_rule(rules.NLPSequenceRatio(trial))
    assert finding.observed == 62.5
    both = invoke_rule(rules.NLPSequenceRatio(trial, token_values="0,1", token_thresholds_percent="70,10"))
    assert [f.sentence for f in both] == ["embedding_input_0 is 12.5 % token 1, above 10 %"]
    assert invoke_rule(rules.NLPSequenceRatio(trial, token_thresholds_percent=70)) == []
    with pytest.raises(InvalidRuleParameter, match="one number for each of the 2 token_values"):
        rules.NLPSequenceRatio(trial, token_values=[0, 1])


def test_nlp_sequence_ratio_of_padding_by_zero_count(write: Write) -> None:
    trial = write([{"input_ids": np.zeros(4)}], raw=False, statistics=("zero_count",))
    assert fired(invoke_rule(rules.NLPSequenceRatio(trial))) == [0]
    with pytest.raises(InsufficientInformationForRuleInvocation, match="input_ids"):
        invoke_rule(rules.NLPSequenceRatio(trial, token_values="1"))
