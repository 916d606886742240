"""A training job that saves to a real S3-compatible server, and one whose bucket refuses the writes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensortrial
from support.servers import ObjectStore
from support.training import Net, seeded, train
from tensortrial import StepState, modes

pytestmark = pytest.mark.s3


def test_a_run_in_a_bucket_is_read_while_it_is_written(ceph_s3: ObjectStore, make_hook: Callable[..., Any]) -> None:
    url = f"{ceph_s3.new_bucket()}/team/run"
    hook = make_hook(
        url, storage_options=ceph_s3.storage_options, include_collections=["weights", "gradients"], flush_seconds=0
    )
    model = seeded()
    hook.register_module(model)
    hook.set_mode(modes.TRAIN)
    train(model, 4)
    hook.flush()

    trial = tensortrial.create_trial(url, storage_options=ceph_s3.storage_options)
    assert trial.steps(modes.TRAIN) == [0, 1, 2]  # the last is still open
    assert trial.has_passed_step(3, modes.TRAIN) is StepState.NOT_YET_AVAILABLE
    hook.close()
    trial.refresh()
    assert trial.steps(modes.TRAIN) == [0, 1, 2, 3]
    first = trial.tensor("Net_fc1.weight").value(0, modes.TRAIN)
    np.testing.assert_array_equal(first, seeded(Net).fc1.weight.detach().numpy())
    found = trial.sql("select count(*), count(distinct name) from tensor_values").fetchall()
    assert found == [(24, 6)]  # two weights and four gradients, four times
    assert len(trial.values(trial.tensor_names(collection="gradients"), [1, 2], mode=modes.TRAIN)) == 4


def test_a_bucket_that_refuses_the_write_does_not_reach_training(
    ceph_s3: ObjectStore,
    make_hook: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv("TENSORTRIAL_STRICT")
    bucket = ceph_s3.new_bucket()
    name = bucket.removeprefix("s3://")
    hook = make_hook(f"{bucket}/run", storage_options=ceph_s3.storage_options, include_collections=["weights"])
    model = seeded()
    hook.register_module(model)
    expected = train(seeded(), 3)
    deny = {"Effect": "Deny", "Principal": "*", "Action": ["s3:PutObject"], "Resource": [f"arn:aws:s3:::{name}/*"]}
    ceph_s3.client.put_bucket_policy(Bucket=name, Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
    with caplog.at_level(logging.ERROR, logger="tensortrial.hooks"):
        assert train(model, 3) == expected
        hook.close()
    (message,) = [record.getMessage() for record in caplog.records if "is off from here on" in record.getMessage()]
    assert "the bucket refuses the write" in message
    assert ceph_s3.secret not in caplog.text
