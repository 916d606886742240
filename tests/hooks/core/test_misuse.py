"""Calls with wrong arguments: each is logged once and saves nothing, and the hook stays on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.made_hooks import closed
from support.plain_hook import Hook
from tensortrial import Run, create_trial, open_runs
from tensortrial.config.collection import Collection
from tensortrial.config.reduction_config import ReductionConfig
from tensortrial.config.save_config import SaveConfig
from tensortrial.errors import ConfigurationError, InvalidCollectionConfiguration
from tensortrial.hooks.core.configuration.json_config import read_configuration
from tensortrial.hooks.core.configuration.options import at_steps
from tensortrial.hooks.library.hook_owner import HookOwner
from tensortrial.hooks.pytorch import Hook as TorchHook

LONE = "lone \ud800"


class OddError(Exception):
    """An error without a text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


class Odd:
    """A value that raises an error at every use."""

    def __float__(self) -> float:
        raise OddError

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not equal to anything")

    __hash__ = object.__hash__
    __array__ = __iter__ = __index__ = __str__ = __float__


CALLS: dict[str, Callable[[Any], object]] = {
    "a lone surrogate in a scalar's name": lambda hook: hook.save_scalar(LONE, 1),
    "a scalar's name that is no text": lambda hook: hook.save_scalar(5, 1),
    "a scalar's name that has no hash": lambda hook: hook.save_scalar(["x"], 1),
    "an empty name of a scalar": lambda hook: hook.save_scalar("", 1),
    "an empty name of a tensor": lambda hook: hook.save_tensor("", np.ones(2)),
    "an empty name of many tensors": lambda hook: hook.save_tensors({"": np.ones(2)}),
    "no name": lambda hook: hook.save_scalar(),
    "an unknown keyword to save_scalar": lambda hook: hook.save_scalar("x", 1, stepp=3),
    "too many arguments": lambda hook: hook.save_scalar("x", 1, False, None, 7),
    "a scalar that is None": lambda hook: hook.save_scalar("x", None),
    "a scalar that is complex": lambda hook: hook.save_scalar("x", 1j),
    "a scalar that is too large": lambda hook: hook.save_scalar("x", 10**400),
    "a scalar that raises": lambda hook: hook.save_scalar("x", Odd()),
    "a scalar's name that raises": lambda hook: hook.save_scalar(Odd(), 1),
    "a step that raises": lambda hook: hook.save_scalar("x", 1, step=Odd()),
    "a timestamp that raises": lambda hook: hook.save_scalar("x", 1, timestamp=Odd()),
    "an sm_metric that raises": lambda hook: hook.save_scalar("x", 1, Odd()),
    "a tensor that raises": lambda hook: hook.save_tensor("x", Odd()),
    "a tensor's name in a list that raises": lambda hook: hook.save_tensor([Odd()], np.ones(2)),
    "a collection to write that raises": lambda hook: hook.save_tensor("x", np.ones(2), [Odd()]),
    "collections to write that raise": lambda hook: hook.save_tensors({"x": np.ones(2)}, Odd()),
    "a key of numbers that raises": lambda hook: hook.log({Odd(): 1}),
    "a mode that raises": lambda hook: hook.set_mode(Odd()),
    "an image's name that raises": lambda hook: hook.save_image(Odd(), np.ones((2, 2))),
    "a timestamp that is no number": lambda hook: hook.save_scalar("x", 1, timestamp="today"),
    "a timestamp that is NaN": lambda hook: hook.save_scalar("x", 1, timestamp=float("nan")),
    "a timestamp before 1970": lambda hook: hook.save_scalar("x", 1, timestamp=-0.5),
    "a timestamp beyond the index": lambda hook: hook.save_scalar("x", 1, timestamp=1e300),
    "a lone surrogate in a tensor's name": lambda hook: hook.save_tensor(LONE, np.ones(2)),
    "a tensor's name that is no text": lambda hook: hook.save_tensor(None, np.ones(2)),
    "an image's name that has no hash": lambda hook: hook.save_image(["x"], np.ones((2, 2))),
    "a masked array": lambda hook: hook.save_tensor("x", np.ma.array([1.0, 2.0], mask=[False, True])),
    "a tensor of objects": lambda hook: hook.save_tensor("x", np.array([object()])),
    "an unknown keyword to save_tensor": lambda hook: hook.save_tensor("x", np.ones(2), collection="mine"),
    "a lone surrogate in a collection to write": lambda hook: hook.save_tensor("x", np.ones(2), [LONE]),
    "a collection to write that is no text": lambda hook: hook.save_tensor("x", np.ones(2), [None]),
    "collections to write that are no list": lambda hook: hook.save_tensor("x", np.ones(2), 5),
    "collections of save_tensors that are no list": lambda hook: hook.save_tensors({"x": np.ones(2)}, 5),
    "collections to write in an array without axes": lambda hook: hook.save_tensor("x", np.ones(2), np.array(3)),
    "collections of save_tensors in such an array": lambda hook: hook.save_tensors({"x": np.ones(2)}, np.array(3)),
    "an sm_metric that is neither true nor false": lambda hook: hook.save_scalar("x", 1, np.ones(2)),
    "an empty collection to write": lambda hook: hook.save_tensor("x", np.ones(2), [""]),
    "an unknown mode": lambda hook: hook.set_mode("training"),
    "a mode that has no hash": lambda hook: hook.set_mode([]),
    "no mode": lambda hook: hook.set_mode(None),
    "an unknown keyword to flush": lambda hook: hook.flush(wait=True),
}


@pytest.mark.usefixtures("lenient")
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_call_is_logged_once_and_the_hook_stays_on(
    out: str, call: Callable[[Any], object], caplog: pytest.LogCaptureFixture
) -> None:
    hook = Hook(out)
    for step in range(2):
        hook.set_mode("TRAIN")
        hook.save_scalar("before", step)
        call(hook)
        hook.save_scalar("after", step)
    assert hook.recorder.active
    hook.close()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert json.loads((Path(out) / "end" / "worker_0.json").read_bytes())["failure"] is None
    trial = create_trial(out)
    assert trial.tensor_names() == ["after", "before"]
    assert trial.tensor("after").steps(mode="TRAIN") == [0, 1]


@pytest.mark.usefixtures("lenient")
def test_the_log_of_a_wrong_call_names_the_method(out: str, caplog: pytest.LogCaptureFixture) -> None:
    Hook(out).set_mode("training")
    assert caplog.messages == [
        "set_mode had no effect: unknown mode 'training'; the modes are TRAIN, EVAL, PREDICT, GLOBAL"
    ]


@pytest.mark.usefixtures("lenient")
def test_wrong_calls_that_differ_in_a_name_are_each_logged_and_those_that_differ_in_numbers_once(
    out: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Hook(out)
    for mode in ("eval1", "eval2", "eval1"):
        hook.set_mode(mode)
    for step in (-1, -2.5, -3e-7):
        hook.save_scalar("x", 1, step=step)
    hook.close()
    assert [message.partition(";")[0] for message in caplog.messages] == [
        "set_mode had no effect: unknown mode 'eval1'",
        "set_mode had no effect: unknown mode 'eval2'",
        "save_scalar had no effect: step must be an integer from 0 to 999999999999, got -1",
        "save_scalar had no effect: step must be an integer, got -2.5",
    ]


@pytest.mark.usefixtures("lenient")
def test_many_refused_values_hide_no_warning(out: str, caplog: pytest.LogCaptureFixture) -> None:
    hook = Hook(out)
    for number in range(1100):
        hook.save_scalar(f"x{number}", None)
    for _ in range(2):
        hook.save_scalar("loss", 1)
    hook.close()
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1000
    assert [record.getMessage()[:24] for record in caplog.records if record.levelname == "WARNING"] == [
        "only the last 'loss' is "
    ]


@pytest.mark.usefixtures("lenient")
def test_the_log_of_a_wrong_image_names_the_method(out: str, caplog: pytest.LogCaptureFixture) -> None:
    Hook(out).save_image("image", np.zeros((2, 2)), step=-1)
    assert [message.split(":")[0] for message in caplog.messages] == ["save_image had no effect"]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_call_is_raised_in_strict_mode(out: str, call: Callable[[Any], object]) -> None:
    hook = Hook(out)
    with pytest.raises((ConfigurationError, TypeError)):
        call(hook)
    hook.save_scalar("x", 1)
    hook.close()
    assert create_trial(out).tensor_names() == ["x"]


@pytest.mark.usefixtures("lenient")
def test_a_captured_tensor_whose_name_cannot_be_saved_does_not_stop_the_others(
    out: str, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Hook(out, save_all=True, save_config={"save_interval": 1})
    recorder = hook.recorder
    for _ in range(2):
        recorder.begin_step()
        for name in (LONE, "fine"):
            plan = recorder.planner.plan(name)
            if plan is not None:
                recorder.record(plan, np.ones(2))
    hook.close()
    assert len(caplog.records) == 1
    assert create_trial(out).tensor("fine").steps() == [0, 1]


def test_a_lone_surrogate_in_a_configuration_leaves_the_run_readable(out: str) -> None:
    hook = Hook(out, include_regex=[LONE], metadata={LONE: LONE, "list": [LONE], "pair": "\U0001f600"})
    hook.add_collection(Collection("mine", include_regex=LONE, tensor_names=[LONE]))
    hook.save_scalar("x", 1)
    trial = closed(hook)
    assert trial.tensor_names() == ["x"]
    assert trial.info.metadata == {r"lone \ud800": r"lone \ud800", "list": [r"lone \ud800"], "pair": "\U0001f600"}
    assert trial.collections()["mine"].tensor_names == {r"lone \ud800"}
    saved = trial.sql("select include_regex from collections where name = 'mine'").fetchall()
    assert saved == [([r"lone \ud800"],)]


def test_a_run_with_a_lone_surrogate_from_an_earlier_release_is_readable(out: str) -> None:
    hook = Hook(out)
    hook.add_collection(Collection("mine", tensor_names=["lone"]))
    hook.save_scalar("x", 1)
    hook.close()
    path = Path(out, "collections", "worker_0.json")
    document = json.loads(path.read_text())
    del document["checksum"]
    path.write_text(json.dumps(document).replace('"lone"', json.dumps(LONE)))
    assert create_trial(out).tensor_names() == ["x"]
    assert create_trial(out).sql("select tensor_names from collections where name = 'mine'").fetchall() == [
        ([r"lone \ud800"],)
    ]


@pytest.mark.parametrize("config", [{"reductions": ["min"]}, {}, "min,max", ["min"], 5])
def test_a_reduction_config_of_another_type_is_refused_at_construction(out: str, config: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"reduction_config must be a ReductionConfig, got .*from_dict"):
        Hook(out, reduction_config=config)
    with pytest.raises(ConfigurationError, match="reduction_config must be a ReductionConfig"):
        Collection("mine", reduction_config=config)
    hook = Hook(out)
    with pytest.raises(ConfigurationError, match="reduction_config must be a ReductionConfig"):
        hook.get_collection("default").reduction_config = config
    hook.save_tensor("x", np.ones(2))
    hook.close()
    assert create_trial(out).tensor_names() == ["x"]


def test_names_may_be_in_an_array(out: str) -> None:
    hook = Hook(out, include_collections=np.array(["mine", "yours"]))
    assert hook.recorder.collections.saved_names == ["mine", "yours"]
    hook.close()


@pytest.mark.parametrize("argument", ["include_collections", "environment", "save_steps"])
@pytest.mark.parametrize("value", [np.array(3), np.ma.masked], ids=["no axes", "masked"])
def test_an_array_without_axes_is_no_list(out: str, argument: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_ENVIRONMENT", raising=False)
    with pytest.raises(ConfigurationError, match=f"{argument} must be "):
        Hook(out, **{argument: value})


class TestACollectionsName:
    @pytest.mark.parametrize(
        "name", [LONE, "nul \0", "line\nfeed", "escape \x1b[2J", "", " ", None, 5, ["x"]], ids=repr
    )
    def test_a_bad_collection_name_is_refused_at_the_call(self, out: str, name: Any, tmp_path: Path) -> None:
        hook = Hook(out)
        with pytest.raises(InvalidCollectionConfiguration):
            hook.get_collection(name)
        with pytest.raises(InvalidCollectionConfiguration):
            hook.add_collection(Collection(name))
        if isinstance(name, str) and name.strip() == name != "":
            with pytest.raises(InvalidCollectionConfiguration):
                Hook(f"{out}2", include_collections=[name])
        hook.save_scalar("x", 1)
        trial = closed(hook)
        assert name not in list(trial.collections())
        assert trial.sql("select count(*) from collections where name = 'default'").fetchall() == [(1,)]

    @pytest.mark.parametrize("names", [5, [5], [None], [""], ["losses", " "]], ids=repr)
    def test_a_collection_name_that_is_no_text_or_blank_is_refused_when_the_hook_is_made(
        self, out: str, names: Any
    ) -> None:
        with pytest.raises(ConfigurationError):
            Hook(out, include_collections=names)

    def test_a_bad_collection_name_is_refused_in_a_json_file(self, tmp_path: Path) -> None:
        path = tmp_path / "hook.json"
        path.write_text(json.dumps({"LocalPath": "run", "CollectionConfigurations": [{"CollectionName": LONE}]}))
        with pytest.raises(InvalidCollectionConfiguration, match=r"lone surrogate.*hook\.json"):
            read_configuration(str(path))

    def test_a_collection_name_may_be_of_any_language(self, out: str) -> None:
        hook = Hook(out)
        hook.get_collection("é 勾配 😀").include("x")
        hook.save_tensor("x", np.ones(2), "é 勾配 😀")
        hook.close()
        assert create_trial(out).tensor_names(collection="é 勾配 😀") == ["x"]


@pytest.mark.usefixtures("lenient")
def test_a_tensor_without_collections_to_write_is_in_default(out: str) -> None:
    hook = Hook(out)
    hook.save_tensor("x", np.ones(2), [])
    hook.close()
    assert create_trial(out).tensor("x").value(0).tolist() == [1, 1]


@pytest.mark.parametrize("name", ["queue_bytes", "flush_seconds"])
@pytest.mark.parametrize("value", [-1, "64 MB", float("nan"), [1]])
def test_options_that_are_no_amounts_are_refused(out: str, name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be a number of 0 or more, got "):
        Hook(out, **{name: value})


class Owner(HookOwner):
    """The base class of the callbacks of a training library."""

    _hook_type = TorchHook


SWITCHES = ("export_tensorboard", "dry_run", "save_all", "resume", "force", "durable")


@pytest.mark.parametrize(
    ("construct", "name"),
    [
        *((Run, name) for name in SWITCHES),
        *((kind, name) for kind in (TorchHook, Owner) for name in (*SWITCHES, "full_tensors")),
        (ReductionConfig, "digest"),
        (Collection, "save_histogram"),
    ],
)
def test_an_option_that_is_neither_true_nor_false_is_refused(out: str, construct: Any, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} must be true or false, got 'maybe'"):
        construct(out, **{name: "maybe"}) if construct is not ReductionConfig else construct(**{name: "maybe"})


def test_an_option_may_be_the_word_of_a_configuration_file(out: str) -> None:
    assert not TorchHook(out, full_tensors="no", save_all="no").recorder.follows
    assert Run(out, dry_run="yes").recorder.options.dry_run is True
    assert Owner(out, resume="no").hook.recorder.options.resume is False


@pytest.mark.parametrize("value", [False, 0, np.False_, "no", None], ids=repr)
def test_save_all_that_is_false_chooses_nothing(value: Any) -> None:
    assert at_steps({"save_all": value}, SaveConfig(save_interval=10)) == {"save_all": value}


@pytest.mark.parametrize("opened", [create_trial, open_runs])
def test_a_reader_refuses_verify_that_is_neither_true_nor_false(out: str, opened: Any) -> None:
    with Run(out) as run:
        run.save_scalar("x", 1)
    with pytest.raises(ConfigurationError, match="verify must be true or false, got 'maybe'"):
        opened(out, verify="maybe")


@pytest.mark.parametrize("queue_bytes", [0, 1000, None])
def test_training_waits_for_a_small_queue_and_nothing_is_lost(out: str, queue_bytes: int | None) -> None:
    with Run(out, queue_bytes=queue_bytes, save_config=SaveConfig(save_interval=1)) as run:
        for step in range(20):
            run.save_tensor("x", np.full(1000, step), step=step)
    assert {step: int(each[-1]) for step, each in create_trial(out).tensor("x").values().items()} == {
        step: step for step in range(20)
    }


def test_a_collection_keeps_its_name(out: str) -> None:
    hook = Hook(out, save_config=SaveConfig(save_interval=1))
    weights = hook.get_collection("weights")
    with pytest.raises(AttributeError, match="'name' of 'Collection'"):
        weights.name = "other"
    weights.include("w")
    hook.recorder.begin_step()
    hook.recorder.save_tensor("w", np.ones(2), "weights")
    hook.close()
    assert create_trial(out).tensor_names(collection="weights") == ["w"]


@pytest.mark.usefixtures("lenient")
def test_an_error_without_a_text_turns_the_hook_off_and_does_not_reach_training(out: str) -> None:
    hook = Hook(out)
    hook.save_scalar("x", 1)
    hook.recorder.fail(OddError())
    assert not hook.recorder.active
    assert json.loads((Path(out) / "end" / "worker_0.json").read_bytes())["failure"] == "OddError: a OddError"
