"""Statistics along an axis in a run: what is saved, what is read, and what rules make of it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from support.rule_runs import fired
from tensortrial import ReductionConfig, Run, create_trial, rules
from tensortrial.errors import ConfigurationError, TensorUnavailableForStep
from tensortrial.rules import invoke_rule
from tensortrial.statistics.by_axis import statistics_by_axis

VALUES = np.arange(-6.0, 6.0).reshape(3, 4)


def save(out: str, config: ReductionConfig, **tensors: Any) -> None:
    with Run(out) as run:
        run.get_collection("mine").reduction_config = config
        for name, value in tensors.items():
            run.save_tensor(name, value, collections_to_write="mine", step=0)


@pytest.mark.parametrize("dtype", ["float16", "float32", ml_dtypes.bfloat16, "int32"])
def test_the_statistics_of_each_index_are_read(out: str, dtype: Any) -> None:
    value = VALUES.astype(dtype)
    save(out, ReductionConfig(["max", "zero_count"], ["mean"], ["l2"], axis=1), w=value)
    tensor = create_trial(out).tensor("w")
    assert tensor.reduction_value(0, "max", axis=1).tolist() == [2.0, 3.0, 4.0, 5.0]
    assert tensor.reduction_value(0, "max", axis=-1).tolist() == [2.0, 3.0, 4.0, 5.0]
    assert tensor.reduction_value(0, "zero_count", axis=1).tolist() == [0.0, 0.0, 1.0, 0.0]
    np.testing.assert_allclose(tensor.reduction_value(0, "mean", abs=True, axis=1), np.abs(VALUES).mean(0))
    assert tensor.reduction_value(0, "max") == 5.0
    with pytest.raises(TensorUnavailableForStep, match="neither its l2 along axis 0 nor its raw value was saved"):
        tensor.reduction_value(0, "l2", axis=0)


def test_statistics_along_an_axis_are_tensors_of_a_collection_of_their_own(out: str) -> None:
    save(out, ReductionConfig(norms=["l1", "l2"], axis=0), w=VALUES)
    trial = create_trial(out)
    assert trial.tensor_names(collection="mine") == ["w"]
    assert trial.tensor_names(collection="by_axis") == ["l1_by_0/w", "l2_by_0/w"]
    assert trial.collection("by_axis").tensor_names == {"l1_by_0/w", "l2_by_0/w"}
    assert trial.tensor("l1_by_0/w").value(0).tolist() == [18.0, 4.0, 14.0]
    query = "select value from tensor_values where name = 'l1_by_0/w'"
    ((data,),) = trial.sql(query).fetchall()
    assert np.frombuffer(data).tolist() == [18.0, 4.0, 14.0]


def test_an_axis_that_a_tensor_lacks_is_logged_once(out: str, caplog: pytest.LogCaptureFixture) -> None:
    config = ReductionConfig(["mean"], axis=1)
    save(out, config, bias=np.ones(3), other=np.ones(3), number=np.float64(2.0), w=VALUES)
    trial = create_trial(out)
    assert trial.tensor_names() == ["bias", "mean_by_1/w", "number", "other", "w"]
    assert [trial.tensor(name).reduction_value(0, "mean") for name in ("bias", "other", "number")] == [1.0, 1.0, 2.0]
    assert caplog.messages == [
        "tensor 'bias' of shape (3,) has no axis 1: of it, and of others without that axis, only the statistics of the "
        "whole are saved"
    ]
    with pytest.raises(ConfigurationError, match=r"tensor 'bias' of shape \[3\] has no axis 1"):
        trial.tensor("bias").reduction_value(0, "mean", axis=1)


def test_collections_may_have_different_axes(out: str) -> None:
    with Run(out) as run:
        run.get_collection("a").reduction_config = ReductionConfig(["max"], axis=0)
        run.get_collection("b").reduction_config = ReductionConfig(["min"], axis=1)
        run.save_tensor("w", VALUES, collections_to_write=["a", "b"])
    assert create_trial(out).tensor_names() == ["max_by_0/w", "min_by_1/w", "w"]


def test_statistics_along_an_axis_are_computed_from_the_raw_value(out: str) -> None:
    with Run(out) as run:
        run.save_tensor("w", VALUES)
    tensor = create_trial(out).tensor("w")
    for axis in (0, 1):
        expected = statistics_by_axis(VALUES, ["kurtosis"], axis)["kurtosis"]
        np.testing.assert_array_equal(tensor.reduction_value(0, "kurtosis", axis=axis), expected)
    with pytest.raises(ConfigurationError, match="axis must be an integer or None, got 'x'"):
        tensor.reduction_value(0, "l2", axis="x")


def test_what_a_dtype_does_not_define_is_not_saved_along_an_axis(out: str) -> None:
    save(out, ReductionConfig(["min"], norms=["l2"], axis=0), z=np.array([3 + 4j, 0]))
    trial = create_trial(out)
    assert trial.tensor_names() == ["l2_by_0/z", "z"]
    assert trial.tensor("z").reduction_value(0, "l2", axis=0).tolist() == [5.0, 0.0]


def test_an_axis_of_one_index_is_an_array(out: str) -> None:
    save(out, ReductionConfig(["sum"], axis=0), w=np.ones((1, 4)), empty=np.ones((0, 4)))
    trial = create_trial(out)
    assert trial.tensor("w").reduction_value(0, "sum", axis=0).tolist() == [4.0]
    assert trial.tensor("empty").reduction_value(0, "sum", axis=0).shape == (0,)


def test_rules_leave_out_statistics_along_an_axis(out: str) -> None:
    save(out, ReductionConfig(["kurtosis", "nan_count", "inf_count"], axis=0), w_relu_output=np.ones((2, 3)))
    trial = create_trial(out)
    assert np.isnan(trial.tensor("w_relu_output").reduction_value(0, "kurtosis", axis=0)).all()
    assert invoke_rule(rules.ExplodingTensor(trial)) == []
    assert invoke_rule(rules.ExplodingTensor(trial, tensor_regex="relu_output")) == []
    assert fired(invoke_rule(rules.ExplodingTensor(trial, collection_names="by_axis"))) == [0]
