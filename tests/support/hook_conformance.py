"""What every framework's hook must do, written once.

A framework's tests subclass `HookConformance` in a file of their own, say what it captures, and give a `Job`; the tests
here then ask the same questions of each and expect the same answers from Trial. No test is to be overridden: what
differs between frameworks is an attribute of the class. Nothing here imports a framework.

    class TestPyTorch(HookConformance):
        module, framework = tt, "pytorch"
        number, tensor, collection, gradient = "MSELoss_output_0", "Net_fc.weight", "weights", "gradient/Net_fc.weight"

        def make_job(self, hook):
            return PyTorchJob(hook)
"""

from __future__ import annotations

import copy
import gc
import inspect
import json
import logging
import os
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

from support.event_folders import steps_of_tags
from tensortrial import create_trial
from tensortrial.config.collection import Collection
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig, SaveConfigMode
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration, RunExists
from tensortrial.mode import ModeKeys, modes

EVERY = SaveConfigMode(save_interval=1)

# What numpy says of each reduction, in float64.
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
# The arguments of every hook that may be passed by position.
POSITIONAL = (
    "out_dir",
    "export_tensorboard",
    "tensorboard_dir",
    "dry_run",
    "reduction_config",
    "save_config",
    "include_regex",
    "include_collections",
    "save_all",
    "include_workers",
)
COUNTS = ("nan_count", "inf_count", "zero_count")


class Job:
    """A small training job of one framework, for a hook to watch.

    Made with a hook, it builds a seeded model and tells the hook of it; made with None, it trains the same without. All
    names are the same in each job of the process, so layers and losses need names of their own where the framework
    counts them.
    """

    def train(self, steps: int, mode: ModeKeys | None = None) -> Sequence[Mapping[str, Any]]:
        """Go on for some steps of training, or, for modes.EVAL, of evaluation, which changes no weight.

        With a mode, the steps must be counted in it: by `hook.set_mode`, where the framework does not do that itself.
        Gives for each step what the hook saw, not asking the hook: the arrays by the names that the class calls
        `number`, `tensor` and, in training, `gradient`.
        """
        raise NotImplementedError

    def end(self) -> None:
        """Training is over, where a framework wants to be told. The hook is closed afterwards by the test."""

    def parts(self) -> Sequence[Any]:
        """The model, and what else must be freed with it although a hook has seen it."""
        return ()


class Broken(Collection):
    """Fails when it is asked of a tensor that training brings."""

    def matches(self, tensor_name: str) -> bool:
        if tensor_name == "before":
            return False
        raise RuntimeError("a broken collection")


class HookConformance:
    """What a subclass says of its framework:"""

    module: ClassVar[ModuleType]
    """The module with the public names, such as tensortrial.hooks.pytorch."""
    hook_class: ClassVar[str] = "Hook"
    """The name of the hook in it."""
    framework: ClassVar[str]
    """What run.json says."""
    number: ClassVar[str]
    """A tensor of one element or a few in the first of `defaults`: a loss or a metric. It is saved raw in any case."""
    defaults: ClassVar[tuple[str, ...]] = ("losses",)
    """The collections that are saved unasked; `number` is in the first."""
    tensor: ClassVar[str]
    """A float tensor of several elements that is saved only if asked for: a weight."""
    collection: ClassVar[str] = "weights"
    """The built-in collection that it is in."""
    gradient: ClassVar[str | None]
    """A tensor in `gradients`, or None where the framework has none."""
    interval: ClassVar[int] = 500
    """The default save_interval."""
    mode: ClassVar[ModeKeys] = modes.GLOBAL
    """What steps are counted in when nobody has called set_mode."""
    step_stays_open: ClassVar[bool] = True
    """Whether the last step takes in what is saved after `train` has returned; if not, the next one does."""

    def make_job(self, hook: Any) -> Job:
        raise NotImplementedError

    def make_hook(self, out_dir: str, **options: Any) -> Any:
        """For a framework whose hook must be given more."""
        return getattr(self.module, self.hook_class)(out_dir, **options)

    def from_json(self, path: str | None = None) -> Any:
        return getattr(self.module, self.hook_class).create_from_json_file(path)

    # What the tests are made of.

    @pytest.fixture
    def hook(self, out: str) -> Iterator[Callable[..., Any]]:
        """Make a hook that saves each step into `out`, unless told otherwise; it is closed after the test."""
        made: list[Any] = []

        def hook(out_dir: str = out, **options: Any) -> Any:
            options.setdefault("save_config", SaveConfig(save_interval=1))
            made.append(self.make_hook(out_dir, **options))
            return made[-1]

        yield hook
        for each in made:
            each.close()

    @pytest.fixture
    def lenient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Errors inside a hook stay there, as in a real job."""
        monkeypatch.delenv("TENSORTRIAL_STRICT")

    @contextmanager
    def running(self, hook: Any) -> Iterator[Job]:
        """A job with the hook, and both ended."""
        job = self.make_job(hook)
        try:
            yield job
        finally:
            job.end()
        hook.close()

    def run(self, hook: Any, steps: int, mode: ModeKeys | None = None) -> Sequence[Mapping[str, Any]]:
        """A whole job; what it saw."""
        with self.running(hook) as job:
            return job.train(steps, mode)

    def steps(self, out: str, name: str, mode: ModeKeys | None = None) -> list[int]:
        trial = create_trial(out)
        return trial.tensor(name).steps(mode or self.mode) if trial.has_tensor(name) else []

    # Which tensors.

    def test_saves_the_default_collections_by_default(self, out: str) -> None:
        hook = self.make_hook(out)
        assert hook.save_config.get_save_config(modes.TRAIN).save_interval == self.interval
        assert set(hook.recorder.collections.saved_names) == set(self.defaults)
        seen = self.run(hook, 2)
        trial = create_trial(out)
        assert trial.steps(self.mode) == [0]
        assert self.number in trial.tensor_names(collection=self.defaults[0])
        assert not trial.has_tensor(self.tensor)
        np.testing.assert_allclose(trial.tensor(self.number).value(0, self.mode), seen[0][self.number], rtol=1e-6)

    def test_saves_what_the_job_saw(self, hook: Any, out: str) -> None:
        collections = [self.collection, *(["gradients"] if self.gradient else [])]
        seen = self.run(hook(include_collections=collections), 3)
        trial = create_trial(out)
        assert self.tensor in trial.tensor_names(collection=self.collection)
        assert self.number not in trial.tensor_names(collection=self.collection)
        for name in filter(None, (self.number, self.tensor, self.gradient)):
            assert trial.tensor(name).steps(self.mode) == [0, 1, 2]
            for step, values in enumerate(seen):
                found = trial.tensor(name).value(step, self.mode)
                assert found.shape == trial.tensor(name).shape(step, self.mode) == np.shape(values[name])
                np.testing.assert_allclose(found, values[name], rtol=1e-6, err_msg=f"{name} at step {step}")
        assert np.size(seen[0][self.tensor]) > 1

    def test_training_is_the_same_with_and_without(self, hook: Any) -> None:
        watched = self.run(hook(save_all=True), 3)
        job = self.make_job(None)
        alone = job.train(3)
        job.end()
        for with_hook, without in zip(watched, alone, strict=True):
            np.testing.assert_allclose(with_hook[self.number], without[self.number], rtol=1e-5)

    def test_include_regex_feeds_default(self, hook: Any, out: str) -> None:
        self.run(hook(include_regex=[f"^{self.tensor}$", "^nothing is called so"]), 1)
        trial = create_trial(out)
        assert trial.tensor_names(collection="default") == [self.tensor]
        assert self.number in trial.tensor_names()
        assert trial.collection("default").include_regex == [f"^{self.tensor}$", "^nothing is called so"]

    def test_save_all_saves_all(self, hook: Any, out: str) -> None:
        self.run(hook(save_all=True), 1)
        expected = {self.number, self.tensor, *([self.gradient] if self.gradient else [])}
        assert expected < set(create_trial(out).tensor_names())

    def test_custom_collections(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=["by_regex", "by_name"])
        custom.get_collection("by_regex").include(f"^{self.tensor}$")
        custom.add_collection(self.module.Collection("by_name", tensor_names=[self.tensor]))
        custom.get_collection("not saved").include(".*")
        self.run(custom, 1)
        trial = create_trial(out)
        for name in ("by_regex", "by_name"):
            assert trial.tensor_names(collection=name) == [self.tensor]
        assert {"by_regex", "by_name", "not saved", self.collection} <= set(trial.collections())

    def test_an_empty_custom_collection_is_refused_when_training_begins(self, hook: Any, out: str) -> None:
        with (
            pytest.raises(InvalidCollectionConfiguration, match=r"custom.*include") as caught,
            self.running(hook(include_collections=["custom"])) as job,
        ):
            job.train(1)
        assert caught.value.name == "custom"
        assert not os.path.exists(out)

    # When.

    @pytest.mark.parametrize(
        ("config", "expected"),
        [
            (SaveConfig(save_interval=2), [0, 2, 4]),
            (SaveConfig(save_interval="2", start_step="1"), [2, 4]),
            (SaveConfig(save_interval=2, end_step=4), [0, 2]),
            (SaveConfig(save_steps="1, 3", end_step=0), [1, 3]),
            (SaveConfigMode(save_interval=3, save_steps=[1]), [0, 1, 3]),
            ({"save_interval": 4}, [0, 4]),
            ({modes.TRAIN: EVERY, "global": {"save_interval": 1}}, [0, 1, 2, 3, 4]),
        ],
        ids=["interval", "start", "end", "steps", "mode-config", "dictionary", "by-mode"],
    )
    def test_a_save_config_decides_which_steps(self, hook: Any, out: str, config: Any, expected: list[int]) -> None:
        self.run(hook(save_config=config, include_collections=[self.collection]), 5)
        assert self.steps(out, self.number) == self.steps(out, self.tensor) == expected

    def test_a_collection_overrides_the_hook(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=[self.collection])
        custom.get_collection(self.collection).save_config = SaveConfig(save_interval=3)
        self.run(custom, 4)
        assert self.steps(out, self.tensor) == [0, 3]
        assert self.steps(out, self.number) == [0, 1, 2, 3]

    def test_end_step_0_switches_a_default_collection_off(self, hook: Any, out: str) -> None:
        custom = hook(include_collections=[self.collection])
        for name in self.defaults:
            custom.get_collection(name).save_config.end_step = 0
        self.run(custom, 2)
        assert self.steps(out, self.number) == []
        assert self.steps(out, self.tensor) == [0, 1]

    def test_modes_count_their_own_steps(self, hook: Any, out: str) -> None:
        config = {modes.TRAIN: SaveConfigMode(save_interval=2), modes.EVAL: SaveConfigMode(save_steps=[1], end_step=0)}
        with self.running(hook(save_config=config)) as job:
            job.train(3, modes.TRAIN)  # global 0 to 2
            seen = job.train(2, modes.EVAL)  # global 3 and 4
            job.train(2, modes.TRAIN)  # global 5 and 6
        trial = create_trial(out)
        assert trial.modes() == [modes.TRAIN, modes.EVAL]
        assert self.steps(out, self.number, modes.TRAIN) == [0, 2, 4]
        assert self.steps(out, self.number, modes.EVAL) == [1]
        assert self.steps(out, self.number, modes.GLOBAL) == [0, 2, 4, 6]
        assert trial.mode(4) is modes.EVAL
        assert trial.mode_step(4) == 1
        assert trial.global_step(modes.EVAL, 1) == 4
        found = trial.tensor(self.number).value(1, modes.EVAL)
        np.testing.assert_allclose(found, seen[1][self.number], rtol=1e-6)

    def test_gradients_are_of_training_only(self, hook: Any, out: str) -> None:
        if self.gradient is None:
            pytest.skip(f"{self.framework} has no gradients")
        with self.running(hook(include_collections=["gradients"], save_all=True)) as job:
            for mode in (modes.TRAIN, modes.EVAL):
                job.train(1, mode)
        assert self.steps(out, self.gradient, modes.GLOBAL) == [0]
        assert self.steps(out, self.number, modes.GLOBAL) == [0, 1]

    def test_a_gradient_names_its_parameter(self, hook: Any, out: str) -> None:
        if self.gradient is None:
            pytest.skip(f"{self.framework} has no gradients")
        with self.running(hook(include_collections=["gradients", "weights", "biases"])) as job:
            job.train(1, modes.TRAIN)
        trial = create_trial(out)
        parameters = {name for kind in ("weights", "biases") for name in trial.tensor_names(collection=kind)}
        rows = trial.sql("select name, parameter, list_contains(collections, 'gradients') from tensors").fetchall()
        linked = {name: parameter for name, parameter, is_gradient in rows if is_gradient}
        assert linked
        assert set(linked.values()) <= parameters
        assert all(parameter is None for _, parameter, is_gradient in rows if not is_gradient)

    def test_an_unknown_mode_is_refused(self, hook: Any) -> None:
        made = hook()
        with pytest.raises(ConfigurationError, match="TRAIN, EVAL, PREDICT, GLOBAL"):
            made.set_mode("training")
        assert made.recorder.active

    # In what form.

    def test_reductions_alone(self, hook: Any, out: str) -> None:
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
        # A loss or a metric is a number by nature.
        np.testing.assert_allclose(trial.tensor(self.number).value(1, self.mode), seen[1][self.number], rtol=1e-6)

    def test_every_reduction_is_numpys_of_the_raw_value_beside_it(self, hook: Any, out: str) -> None:
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

    def test_a_collection_has_its_own_reductions_and_histograms(self, hook: Any, out: str) -> None:
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

    def test_export_tensorboard_shows_numbers_and_histograms(self, hook: Any, out: str, tmp_path: Path) -> None:
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

    # Copies and ends.

    @pytest.mark.parametrize(
        "copied",
        [copy.copy, copy.deepcopy, lambda hook: pickle.loads(pickle.dumps(hook))],
        ids=["copy", "deepcopy", "pickle"],
    )
    def test_a_copy_of_a_hook_saves_nothing_and_says_so(
        self, hook: Any, out: str, copied: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        original = hook()
        twin = copied(original)
        assert isinstance(twin, getattr(self.module, self.hook_class))
        assert twin.out_dir == out
        assert self.module.get_hook() is original
        with caplog.at_level(logging.WARNING, "tensortrial"):
            self.run(twin, 2)
        assert not os.path.exists(out)
        (said,) = [record.getMessage() for record in caplog.records if record.name == "tensortrial.hooks"]
        assert f"a copy of the hook of {out}" in said
        self.run(original, 1)
        assert create_trial(out).steps(self.mode) == [0]

    def test_a_copy_of_a_hook_that_is_off_says_nothing(
        self, hook: Any, out: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.run(copy.deepcopy(hook(dry_run=True)), 1)
        assert not [record for record in caplog.records if record.name == "tensortrial.hooks"]

    def test_a_closed_hook_holds_nothing_of_its_job(self, hook: Any) -> None:
        made = hook(save_all=True)
        with self.running(made) as job:
            job.train(2)
        parts = [weakref.ref(part) for part in job.parts()]
        if not parts:
            pytest.skip("the job names nothing that must be freed")
        del job
        gc.collect()
        assert [part() for part in parts if part() is not None] == []
        assert not made.recorder.active

    def test_a_job_does_not_hold_a_closed_hook(self, out: str) -> None:
        made = self.make_hook(out, save_all=True, save_config=SaveConfig(save_interval=1))
        with self.running(made) as job:
            job.train(2)
        self.module.del_hook()
        reference, parts = weakref.ref(made), job.parts()
        if not parts:
            pytest.skip("the job names nothing that outlives its hook")
        del made, job
        gc.collect()
        assert reference() is None

    # Values of the user's.

    def test_saved_by_a_call(self, hook: Any, out: str) -> None:
        made = hook(save_config=SaveConfig(save_interval=100))
        if self.mode is not modes.GLOBAL:
            made.set_mode(self.mode)
        made.save_scalar("before", 7)
        with self.running(made) as job:
            job.train(2)
            made.save_scalar("accuracy", 0.5)
            made.save_scalar("f1", np.float32(0.25), sm_metric=True, timestamp=1000.5)
            made.save_tensor("matrix", np.arange(6.0).reshape(2, 3), collections_to_write=["mine", "other"])
            made.save_tensor("list", [[1, 2], [3, 4]])
            job.train(1)
        trial, after = create_trial(out), 1 if self.step_stays_open else 2
        assert trial.tensor("before").steps(self.mode) == [0]
        for name, value in {
            "accuracy": 0.5,
            "f1": 0.25,
            "matrix": [[0, 1, 2], [3, 4, 5]],
            "list": [[1, 2], [3, 4]],
        }.items():
            assert trial.tensor(name).steps(self.mode) == [after], name
            assert trial.tensor(name).value(after, self.mode).tolist() == value
        assert trial.tensor_names(collection="sm_metrics") == ["f1"]
        assert trial.tensor_names(collection="mine") == trial.tensor_names(collection="other") == ["matrix"]
        assert trial.sql("SELECT epoch_ms(saved_at) FROM tensors WHERE name = 'f1'").fetchall() == [(1000500,)]

    def test_saved_by_a_call_in_the_form_that_its_collection_asks_for(self, hook: Any, out: str) -> None:
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

    # Configuration.

    def test_json(self, hook: Any, out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        document = {
            "LocalPath": out,
            "HookParameters": {"save_interval": "2", "include_regex": f"^{self.tensor}$", "eval.save_interval": "1"},
            "CollectionConfigurations": [
                {
                    "CollectionName": self.collection,
                    "CollectionParameters": {
                        "save_interval": "3",
                        "reductions": "mean,abs_l2",
                        "save_raw_tensor": "True",
                    },
                },
                {"CollectionName": "mine", "CollectionParameters": {"include_regex": self.number, "save_steps": "1"}},
            ],
        }
        path = tmp_path / "hook.json"
        path.write_text(json.dumps(document))
        monkeypatch.setenv("SMDEBUG_CONFIG_FILE_PATH", str(path))
        made = self.module.get_hook(create_if_not_exists=True)
        assert isinstance(made, getattr(self.module, self.hook_class))
        self.run(made, 4)
        trial = create_trial(out)
        assert self.steps(out, self.tensor) == [0, 2, 3]
        assert set(trial.tensor(self.tensor).reduction_values(3, self.mode)) == {("mean", False), ("l2", True)}
        assert self.steps(out, self.number) == [0, 1, 2]
        assert self.number in trial.tensor_names(collection="mine")

    def test_json_leaves_the_defaults(self, out: str, tmp_path: Path) -> None:
        (tmp_path / "hook.json").write_text(json.dumps({"LocalPath": out}))
        made = self.from_json(str(tmp_path / "hook.json"))
        assert self.module.get_hook() is made
        assert made.out_dir == out
        assert set(made.recorder.collections.saved_names) == set(self.defaults)
        assert all(made.save_config.get_save_config(mode).save_interval == self.interval for mode in modes)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"out_dir": ""}, "where to save"),
            ({"include_workers": "two"}, "'one' or 'all'"),
            ({"codec": "gzip"}, "none, lz4, zstd"),
            ({"flush_seconds": -1}, "0 or more"),
            ({"include_regex": ["["]}, r"'\['"),
            ({"include_regex": [None]}, "None"),
            ({"save_all": "perhaps"}, "true or false"),
            ({"save_config": 3}, "save_config"),
        ],
        ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
    )
    def test_arguments_that_make_no_sense_are_refused(self, out: str, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            self.make_hook(**{"out_dir": out, **options})
        assert self.module.get_hook() is None

    def test_the_constructor_shows_its_arguments_in_the_order_of_smdebug(self) -> None:
        hook_class = getattr(self.module, self.hook_class)
        shown = inspect.signature(hook_class).parameters
        assert list(shown)[: len(POSITIONAL)] == list(POSITIONAL)
        assert {"resume", "force", "storage_options", "flush_seconds", "codec", "metadata"} <= set(shown)
        assert (shown["include_workers"].default, shown["codec"].default) == ("one", "none")
        assert all(f"\n    {name}: " in hook_class.__init__.__doc__ for name in shown)

    def test_an_unknown_argument_is_a_type_error_that_names_it(self, out: str) -> None:
        with pytest.raises(TypeError, match=r"__init__\(\) got an unexpected keyword argument 'save_intervall'"):
            getattr(self.module, self.hook_class)(out, save_intervall=1)
        with pytest.raises(TypeError, match=r"__init__\(\) missing a required argument: 'out_dir'"):
            getattr(self.module, self.hook_class)()

    def test_collections(self, hook: Any) -> None:
        made = hook()
        assert {"all", "default", "sm_metrics", self.collection, *self.defaults} <= set(made.get_collections())
        assert made.get_collection("nowhere", create=False) is None
        assert made.get_collection(self.collection) is made.get_collections()[self.collection]
        assert made.get_collection("all").include_regex == [".*"]
        assert isinstance(made.get_collection("new"), self.module.Collection)
        with pytest.raises(ConfigurationError, match="takes a Collection"):
            made.add_collection("weights")

    def test_the_current_hook_is_the_last_one_made_unless_another_is_set(self, hook: Any, tmp_path: Path) -> None:
        assert self.module.get_hook() is None
        first, second = hook(), hook(str(tmp_path / "second"))
        assert self.module.get_hook() is second
        self.module.set_hook(first)
        assert self.module.get_hook("anything") is first
        self.module.set_hook(second)
        self.module.del_hook()
        assert self.module.get_hook() is None
        assert not second.recorder.active
        assert first.recorder.active

    def test_a_hook_after_a_closed_one_is_current(
        self, hook: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = hook()
        first.save_scalar("x", 1)
        first.close()
        for _ in range(2):
            self.module.get_hook().save_scalar("x", 2)
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "is closed, and what is saved with it is lost" in caplog.text
        second = hook(str(tmp_path / "second"))
        self.module.get_hook().save_scalar("x", 3)
        second.close()
        assert create_trial(tmp_path / "second").tensor("x").value(0) == 3

    def test_a_hook_that_nobody_holds_is_closed_when_the_next_is_made(self, tmp_path: Path) -> None:
        for number in range(5):
            self.make_hook(str(tmp_path / str(number)), save_config=SaveConfig(save_interval=1)).save_scalar(
                "x", number
            )
        writers = [thread.name for thread in threading.enumerate() if thread.name.startswith("tensortrial-")]
        assert len(writers) <= 4, writers
        for number in range(3):
            assert create_trial(tmp_path / str(number)).loaded_all_steps()

    def test_public_names(self) -> None:
        for name in self.module.__all__:
            assert getattr(self.module, name) is not None
        common = ("Collection", "CollectionKeys", "SaveConfig", "SaveConfigMode", "ReductionConfig", "modes")
        assert {self.hook_class, *common, "create_trial", "get_hook", "set_hook", "del_hook"} <= set(
            self.module.__all__
        )

    # The run.

    @pytest.mark.parametrize(
        ("variable", "value"), [("TENSORTRIAL", "0"), ("USE_SMDEBUG", "False"), (None, None)], ids=str
    )
    def test_switched_off_writes_nothing(
        self, hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None, value: str
    ) -> None:
        if variable is not None:
            monkeypatch.setenv(variable, value)
        made = hook(save_all=True, dry_run=variable is None)
        made.save_scalar("x", 1)
        made.save_tensor("y", [1])
        assert len(self.run(made, 2)) == 2
        made.flush()
        assert os.listdir(tmp_path) == []

    def test_one_worker_or_all(self, hook: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("WORLD_SIZE", "2")
        made = []
        for rank in ("1", "0"):
            monkeypatch.setenv("RANK", rank)
            made += [hook(str(tmp_path / "one")), hook(str(tmp_path / "all"), include_workers="all")]
        assert [each.worker for each in made] == ["worker_1", "worker_1", "worker_0", "worker_0"]
        with ExitStack() as together:
            for job in [together.enter_context(self.running(each)) for each in made]:
                job.train(1)
        one, both = create_trial(tmp_path / "one"), create_trial(tmp_path / "all")
        assert (one.workers(), one.num_workers) == (["worker_0"], 1)
        assert (both.workers(), both.num_workers) == (["worker_0", "worker_1"], 2)
        for trial in (one, both):
            assert trial.tensor(self.number).steps(self.mode) == [0]
            assert trial.loaded_all_steps()

    def test_an_out_dir_that_holds_a_run_is_refused(self, hook: Any) -> None:
        self.run(hook(), 1)
        with pytest.raises(RunExists, match=r"choose another out_dir.*resume=True"):
            hook()
        # Without writing there is nothing to lose.
        hook(dry_run=True)

    def test_resume_goes_on_after_the_last_step(self, hook: Any, out: str) -> None:
        for _ in range(2):
            with self.running(hook(resume=True)) as job:
                job.train(2, modes.TRAIN)
                job.train(1, modes.EVAL)
        assert self.steps(out, self.number, modes.TRAIN) == [0, 1, 2, 3]
        assert self.steps(out, self.number, modes.EVAL) == [0, 1]
        assert self.steps(out, self.number, modes.GLOBAL) == [0, 1, 2, 3, 4, 5]

    def test_is_read_while_it_is_written_and_the_same_afterwards(self, hook: Any, out: str) -> None:
        made = hook(include_collections=[self.collection])
        with self.running(made) as job:
            job.train(2)
            live = create_trial(out)
            assert live.tensor(self.tensor).steps(self.mode)[:1] == [0]
            assert not live.loaded_all_steps()
            first = live.tensor(self.tensor).value(0, self.mode)
        made.close()
        made.save_scalar("late", 1)
        made.save_tensor("late", [1])
        made.set_mode(modes.EVAL)
        made.close()
        again = create_trial(out)
        for trial in (live, again):
            assert trial.tensor(self.tensor).steps(self.mode) == [0, 1]
            assert trial.loaded_all_steps()
            np.testing.assert_array_equal(trial.tensor(self.tensor).value(0, self.mode), first)
        assert live.tensor_names() == again.tensor_names()
        assert not again.has_tensor("late")

    def test_says_what_the_run_is(self, hook: Any, out: str) -> None:
        self.run(hook(metadata={"project": "digits", "seed": 7}, codec="zstd"), 1)
        run = json.loads(Path(out, "run.json").read_bytes())
        assert run["framework"] == self.framework
        assert run["metadata"] == {"project": "digits", "seed": 7}
        assert run["codec"] == "zstd"
        assert {"tensortrial", "python"} < set(run["versions"])

    def test_an_error_inside_does_not_reach_training(
        self, hook: Any, out: str, lenient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = hook(include_collections=["broken"])
        made.add_collection(Broken("broken", ".*"))
        made.save_scalar("before", 1)
        assert len(self.run(made, 3)) == 3
        with made.step():
            made.save_scalar("after", 1)
        made.flush()
        errors = _errors(caplog)
        assert len(errors) == 1
        assert "training is not affected: RuntimeError: a broken collection" in errors[0].getMessage()
        end = json.loads(Path(out, "end", "worker_0.json").read_bytes())
        assert "a broken collection" in end["failure"]
        assert create_trial(out).tensor_names() == ["before"]
        # The traceback in it keeps its frames, and so the trials, beyond the end of DuckDB.
        caplog.clear()

    def test_a_tensor_that_cannot_be_stored_leaves_the_others(
        self, hook: Any, out: str, lenient: None, caplog: pytest.LogCaptureFixture
    ) -> None:
        made = hook()
        with self.running(made) as job:
            for _ in range(2):
                job.train(1)
                made.save_tensor("objects", [object()])
                made.save_tensor("ragged", [[1], [2, 3]])
                made.save_scalar("text", "not a number")
        assert sorted(record.args[0] for record in _errors(caplog)) == ["objects", "ragged", "text"]
        trial = create_trial(out)
        assert trial.tensor(self.number).steps(self.mode) == [0, 1]
        assert not {"objects", "ragged", "text"} & set(trial.tensor_names())
        assert json.loads(Path(out, "end", "worker_0.json").read_bytes())["failure"] is None


def _errors(caplog: pytest.LogCaptureFixture) -> list[Any]:
    """What hooks have logged as errors. They may have warned of other things."""
    return [record for record in caplog.records if (record.name, record.levelname) == ("tensortrial.hooks", "ERROR")]
