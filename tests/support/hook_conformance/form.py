"""The form in which a hook saves tensors: raw, as statistics, and as event files.

The recorder and the writer's thread decide it from the plan of the tensor, which `hooks/core/configuration` makes, and
no binding takes part. So one hook runs these tests.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.event_folders import steps_of_tags
from tensortrial import create_trial
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.mode import modes
from tensortrial.statistics.digest import digest_of_array

from .job import HookTests

# Each reduction as numpy computes it, in float64.
NUMPY: dict[str, Callable[[Any], Any]] = {
    "min": np.min,
    "max": np.max,
    "mean": np.mean,
    "median": np.median,
    "std": np.std,
    "variance": np.var,
    "sum": np.sum,
    "prod": np.prod,
    "l1": lambda x: np.abs(x).sum(),
    "l2": lambda x: np.sqrt((x * x).sum()),
    "nan_count": lambda x: np.isnan(x).sum(),
    "inf_count": lambda x: np.isinf(x).sum(),
    "zero_count": lambda x: (x == 0).sum(),
}
NORMS = ("l1", "l2")
COUNTS = ("nan_count", "inf_count", "zero_count")


class FormTests(HookTests):
    """Tests of raw values, statistics and event files."""

    def test_reductions_are_saved_without_the_raw_value(self, hook: Any, out: str) -> None:
        config = ReductionConfig(["min", "mean"], ["max"], ["l2"], ["l1"])
        seen = self.run(hook(include_collections=[self.collection], reduction_config=config), 2)
        trial = create_trial(out)
        tensor, expected = trial.tensor(self.tensor), np.asarray(seen[1][self.tensor], np.float64)
        found = tensor.reduction_values(1, self.mode)
        assert set(found) == {("min", False), ("mean", False), ("max", True), ("l2", False), ("l1", True)}
        assert found[("max", True)] == pytest.approx(np.abs(expected).max(), rel=1e-6)
        assert found[("l2", False)] == pytest.approx(np.sqrt((expected**2).sum()), rel=1e-6)
        with pytest.raises(KeyError, match="only reductions were"):
            tensor.value(1, self.mode)
        assert tensor.shape(1, self.mode) == expected.shape
        # A loss or a metric is always saved raw.
        np.testing.assert_allclose(trial.tensor(self.number).value(1, self.mode), seen[1][self.number], rtol=1e-6)

    def test_quantiles_are_saved_without_the_raw_value(self, hook: Any, out: str) -> None:
        made = hook(include_collections=[self.collection])
        made.get_collection(self.collection).reduction_config = ReductionConfig(quantiles=True)
        seen = self.run(made, 1)
        tensor, value = create_trial(out).tensor(self.tensor), np.asarray(seen[0][self.tensor], np.float64)
        for q in (0.0, 0.25, 0.5, 0.95, 1.0):
            expected = np.quantile(value, q, method="inverted_cdf")
            assert tensor.quantile(0, q, self.mode) == pytest.approx(expected, rel=1 / 128 + 1e-6)
        with pytest.raises(KeyError, match="only reductions were"):
            tensor.value(0, self.mode)

    def test_a_digest_is_saved_without_the_raw_value(self, hook: Any, out: str) -> None:
        for form, config in {"only": {}, "with": {"save_raw_tensor": True}, "and": {"norms": ["l2"]}}.items():
            made = hook(f"{out}-{form}", include_collections=[self.collection])
            made.get_collection(self.collection).reduction_config = ReductionConfig(digest=True, **config)
            seen = self.run(made, 1)
            tensor = create_trial(f"{out}-{form}").tensor(self.tensor)
            expected = digest_of_array(np.asarray(seen[0][self.tensor]))
            assert tensor.reduction_value(0, "digest", self.mode) == expected
            if form == "with":
                assert digest_of_array(tensor.value(0, self.mode)) == expected
            else:
                with pytest.raises(KeyError, match="only reductions were"):
                    tensor.value(0, self.mode)

    def test_every_reduction_equals_numpys_of_the_raw_value(self, hook: Any, out: str) -> None:
        plain = [name for name in NUMPY if name not in NORMS]
        config = ReductionConfig(plain, [name for name in plain if name not in COUNTS], NORMS, NORMS, True)
        self.run(hook(include_collections=[self.collection], reduction_config=config), 1)
        tensor = create_trial(out).tensor(self.tensor)
        raw = tensor.value(0, self.mode).astype(np.float64)
        found = tensor.reduction_values(0, self.mode)
        assert len(found) == 2 * len(NUMPY) - len(COUNTS)
        for (name, absolute), value in found.items():
            expected = NUMPY[name](np.abs(raw) if absolute else raw)
            assert value == pytest.approx(expected, rel=1e-9, abs=1e-300), (name, absolute)

    def test_a_collection_may_have_its_own_reductions_and_histograms(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=[self.collection], reduction_config=ReductionConfig(["max"]))
        custom.get_collection(self.collection).reduction_config = ReductionConfig("abs_mean", save_raw_tensor="True")
        custom.get_collection(self.collection).save_histogram = True
        self.run(custom, 1)
        tensor = create_trial(out).tensor(self.tensor)
        assert set(tensor.reduction_values(0, self.mode)) == {("mean", True)}
        edges, counts = tensor.histogram(0, self.mode)
        assert len(edges) == len(counts) + 1
        assert counts.sum() == tensor.value(0, self.mode).size
        assert create_trial(out).tensor(self.number).histogram(0, self.mode) is None

    def test_event_files_have_the_scalars_and_histograms_of_the_run(self, hook: Any, out: str, tmp_path: Path) -> None:
        custom = hook(
            export_tensorboard=True,
            tensorboard_dir=tmp_path / "events",
            include_collections=[self.collection],
            reduction_config=ReductionConfig(["max"]),
        )
        with self.running(custom) as job:
            job.train(2, modes.TRAIN)
            job.train(1, modes.EVAL)
        trial = create_trial(out)
        for mode in (modes.TRAIN, modes.EVAL):
            numbers = {row[0] for row in trial.sql("select name from scalars").fetchall()}
            expected = dict.fromkeys(numbers & set(trial.tensor_names(mode=mode)))
            for name in set(trial.tensor_names(mode=mode)) - numbers:
                tensor = trial.tensor(name)
                (step, *_) = tensor.steps(mode)
                expected |= {name: None} if tensor.histogram(step, mode) is not None else {}
                expected |= {f"{name}/{reduction}": None for reduction, _ in tensor.reduction_values(step, mode)}
            shown = steps_of_tags(tmp_path / "events" / mode.name.lower())
            assert shown == {tag: trial.steps(mode) for tag in expected}
            assert self.number in shown
            assert f"{self.tensor}/max" in shown

    def test_what_is_saved_by_a_call_has_the_form_of_its_collection(self, hook: Any, out: str) -> None:
        made = hook(reduction_config=ReductionConfig(["max"]))
        made.save_tensor("metric", [1.0, 2.0], "metrics")
        made.save_tensor("sm", [1.0, 2.0], ["sm_metrics"])
        made.save_tensor("other", [1.0, 2.0])
        made.save_scalar("scalar", 3)
        made.close()
        trial, mode = create_trial(out), made.mode
        assert trial.tensor("metric").value(0, mode).tolist() == trial.tensor("sm").value(0, mode).tolist() == [1, 2]
        assert trial.tensor("scalar").value(0, mode) == 3
        assert trial.tensor("other").reduction_values(0, mode) == {("max", False): 2}
        with pytest.raises(KeyError, match="only reductions were"):
            trial.tensor("other").value(0, mode)
