"""The callback for the Trainer of transformers, in trainings by the Trainer itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Nothing is fetched: models are made from configurations.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from tensortrial import create_trial  # noqa: E402
from tensortrial.errors import ConfigurationError, UnsupportedFramework  # noqa: E402
from tensortrial.hooks.library.versions import check_version  # noqa: E402
from tensortrial.hooks.pytorch import Hook, SaveConfig, modes  # noqa: E402
from tensortrial.hooks.transformers import TensorTrialCallback  # noqa: E402

torch.set_num_threads(1)
EACH = {"save_config": SaveConfig(save_interval=1)}
MakeTrainer = Callable[..., Any]


@pytest.fixture(autouse=True)
def no_out_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TENSORTRIAL_OUT_DIR", raising=False)


def tokens(count: int, seed: int = 0) -> list[dict[str, Any]]:
    found = torch.randint(3, 64, (count, 8), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": each, "labels": each} for each in found]


def language_model() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=64, n_embd=16, n_layer=1, n_head=2, n_positions=16, use_cache=False, bos_token_id=1, eos_token_id=2
    )
    return transformers.GPT2LMHeadModel(config)


@pytest.fixture
def made_trainer(tmp_path: Path) -> Iterator[MakeTrainer]:
    """Make a trainer of a small model: four updates, each of three batches of two texts."""
    callbacks: list[Any] = []

    def make(callback: Any, model: Any = None, **arguments: Any) -> Any:
        callbacks.append(callback)
        given = {
            "output_dir": str(tmp_path / "out"),
            "max_steps": 4,
            "per_device_train_batch_size": 2,
            "per_device_eval_batch_size": 2,
            "gradient_accumulation_steps": 3,
            "logging_steps": 1,
            "learning_rate": 0.01,
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
            "disable_tqdm": True,
            "dataloader_pin_memory": False,
            **arguments,
        }
        return transformers.Trainer(
            model or language_model(),
            transformers.TrainingArguments(**given),
            train_dataset=tokens(24),
            eval_dataset=tokens(5, seed=1),
            callbacks=[callback] if callback is not None else [],
        )

    yield make
    for callback in callbacks:
        if callback is not None:
            callback.close()


def test_batches_of_an_evaluation_are_steps_in_mode_eval(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    callback = TensorTrialCallback(tmp_path / "run", save_all=True, **EACH)
    trainer = made_trainer(callback, eval_strategy="steps", eval_steps=2)
    trainer.train()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [1, 2, 3, 4]
    # Five texts in batches of two, after steps 2 and 4.
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2, 3, 4, 5]
    outputs = trial.tensor("transformer.h.0_output_0")
    assert [outputs.value(step, mode=modes.EVAL).shape[0] for step in range(6)] == [2, 2, 1, 2, 2, 1]
    trainer.evaluate()
    assert trial.steps(mode=modes.EVAL) == list(range(9))
    assert trial.steps(mode=modes.TRAIN) == [1, 2, 3, 4]


def test_logs_are_saved_at_their_own_steps(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    callback = TensorTrialCallback(tmp_path / "run", **EACH)
    trainer = made_trainer(callback, eval_strategy="steps", eval_steps=2, logging_steps=2)
    trainer.train()
    trial = create_trial(tmp_path / "run")
    for name in ("loss", "learning_rate", "grad_norm", "eval_loss", "train_loss"):
        logged = {log["step"]: log[name] for log in trainer.state.log_history if name in log}
        assert logged
        tensor = trial.tensor(name)
        assert tensor.steps(mode=modes.TRAIN) == list(logged)
        for step, value in logged.items():
            assert tensor.value(step, mode=modes.TRAIN) == pytest.approx(value)


def test_a_loss_that_is_logged_after_the_first_steps_is_not_missed(
    made_trainer: MakeTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = TensorTrialCallback(tmp_path / "run", save_interval=1)
    trainer = made_trainer(callback, logging_steps=3)
    trainer.compute_loss_func = lambda outputs, labels, **_: outputs.logits.square().mean()
    trainer.train()
    callback.close()
    assert 3 in create_trial(tmp_path / "run").tensor("loss").steps(modes.TRAIN)
    assert not any("no loss is saved" in text for text in caplog.messages)


def test_gradients_are_those_that_the_optimizer_uses(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    """They are the sum of three batches, and clipped. An update is a step of mode TRAIN."""
    seen: dict[int, Any] = {}

    class Seen(transformers.TrainerCallback):
        def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            seen[state.global_step + 1] = model.transformer.wte.weight.grad.clone().numpy()

    callback = TensorTrialCallback(tmp_path / "run", include_collections=["gradients"], **EACH)
    trainer = made_trainer(callback, max_grad_norm=0.1)
    trainer.add_callback(Seen())
    trainer.train()
    trial = create_trial(tmp_path / "run")
    gradient = trial.tensor("gradient/GPT2LMHeadModel_transformer.wte.weight")
    assert trial.steps(mode=modes.TRAIN) == gradient.steps(mode=modes.TRAIN) == [1, 2, 3, 4]
    for step, value in seen.items():
        assert (gradient.value(step, mode=modes.TRAIN) == value).all()


def test_weights_are_those_before_the_update(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    model = language_model()
    before = model.transformer.wte.weight.detach().clone().numpy()
    callback = TensorTrialCallback(tmp_path / "run", include_collections=["weights"], **EACH)
    made_trainer(callback, model).train()
    weight = create_trial(tmp_path / "run").tensor("GPT2LMHeadModel_transformer.wte.weight")
    assert (weight.value(1, mode=modes.TRAIN) == before).all()
    assert (weight.value(2, mode=modes.TRAIN) != before).any()


def test_a_resumed_training_continues_the_run_at_its_checkpoint(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    """The first attempt ends after step 3, one after its checkpoint. The second one's step 3 takes its place."""

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_training_stop = state.global_step == 3

    saves = {"save_strategy": "steps", "save_steps": 2}
    first = TensorTrialCallback(tmp_path / "run", include_collections=["weights"], **EACH)
    trainer = made_trainer(first, **saves)
    trainer.add_callback(Stop())
    trainer.train()
    first.close()
    assert create_trial(tmp_path / "run").steps(mode=modes.TRAIN) == [1, 2, 3]

    model = language_model()
    trainer = made_trainer(
        TensorTrialCallback(tmp_path / "run", include_collections=["weights"], **EACH), model, **saves
    )
    trainer.train_dataset = tokens(24, seed=5)
    begun: list[Any] = []

    class Seen(transformers.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            begun.append((state.global_step + 1, model.transformer.wte.weight.detach().clone().numpy()))

    trainer.add_callback(Seen())
    trainer.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-2"))
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [1, 2, 3, 4]
    weight = trial.tensor("GPT2LMHeadModel_transformer.wte.weight")
    assert [step for step, _ in begun] == [3, 4]
    assert (weight.value(4, mode=modes.TRAIN) == begun[1][1]).all()
    assert trial.tensor("loss").steps(mode=modes.TRAIN) == [1, 2, 3, 4]
    losses = {each["step"]: each["loss"] for each in trainer.state.log_history if "loss" in each}
    assert trial.tensor("loss").value(3, mode=modes.TRAIN) == losses[3]
    rows = trial.sql("select mode_step, value from scalars where name = 'loss' and mode_step > 2 order by saved_at")
    assert rows.fetchall() == [(3, losses[3]), (4, losses[4])]
    ((step, before),) = trial.sql("select mode_step, scalar from superseded where name = 'loss'").fetchall()
    assert step == 3
    assert before != losses[3]


def test_a_resumed_training_finds_the_run_by_its_default_folder(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    saves = {"save_strategy": "steps", "save_steps": 2}
    first = TensorTrialCallback(**EACH)
    made_trainer(first, **saves).train()
    first.close()
    second = TensorTrialCallback(**EACH)
    made_trainer(second, max_steps=6, **saves).train(resume_from_checkpoint=True)
    third = TensorTrialCallback(**EACH)
    made_trainer(third, **saves).train()
    assert create_trial(tmp_path / "out" / "tensortrial").steps(mode=modes.TRAIN) == [1, 2, 3, 4, 5, 6]
    assert create_trial(tmp_path / "out" / "tensortrial-2").steps(mode=modes.TRAIN) == [1, 2, 3, 4]


def test_report_to_tensortrial_is_enough(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    trainer = made_trainer(None, report_to="tensortrial", logging_steps=2)
    trainer.train()
    trainer.pop_callback(TensorTrialCallback).close()
    trial = create_trial(tmp_path / "out" / "tensortrial")
    assert trial.tensor("loss").steps(mode=modes.TRAIN) == [2, 4]
    assert trial.tensor("GPT2LMHeadModel_output_loss").steps(mode=modes.TRAIN) == [1, 2, 3, 4]
    norm = trial.tensor("gradient/GPT2LMHeadModel_transformer.wte.weight").reduction_value(3, "l2", modes.TRAIN)
    assert norm > 0
    run = json.loads((tmp_path / "out" / "tensortrial" / "run.json").read_text())
    assert run["metadata"]["trainer"]["max_steps"] == 4


def test_an_environment_variable_has_the_arguments_of_report_to_tensortrial(
    made_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTRIAL_TRANSFORMERS", json.dumps({"save_interval": 2, "include_regex": "wte.weight$"}))
    trainer = made_trainer(None, report_to="tensortrial")
    trainer.train()
    trainer.pop_callback(TensorTrialCallback).close()
    trial = create_trial(tmp_path / "out" / "tensortrial")
    assert trial.tensor("GPT2LMHeadModel_transformer.wte.weight").steps(mode=modes.TRAIN) == [2, 4]
    monkeypatch.setenv("TENSORTRIAL_TRANSFORMERS", "{")
    with pytest.raises(ConfigurationError, match="TENSORTRIAL_TRANSFORMERS must be 1, or a JSON object"):
        TensorTrialCallback()


def test_an_interval_alone_saves_health_at_that_interval(
    made_trainer: MakeTrainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENSORTRIAL_TRANSFORMERS", json.dumps({"save_interval": 2}))
    trainer = made_trainer(None, report_to="tensortrial")
    trainer.train()
    trainer.pop_callback(TensorTrialCallback).close()
    callback = TensorTrialCallback(tmp_path / "run", save_interval=2)
    made_trainer(callback).train()
    callback.close()
    for folder in (tmp_path / "out" / "tensortrial", tmp_path / "run"):
        gradient = create_trial(folder).tensor("gradient/GPT2LMHeadModel_transformer.wte.weight")
        assert gradient.steps(modes.TRAIN) == [2, 4]
        assert gradient.reduction_value(4, "l2", modes.TRAIN) > 0


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # peft's
def test_adapters_leave_the_names_of_the_model_as_they_are(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True)
    callback = TensorTrialCallback(tmp_path / "run", include_collections=["weights", "gradients"], **EACH)
    made_trainer(callback, peft.get_peft_model(language_model(), config), max_steps=1).train()
    trial = create_trial(tmp_path / "run")
    weights = set(trial.tensor_names(collection="weights"))
    plain = {f"GPT2LMHeadModel_{name}" for name, _ in language_model().named_parameters() if "weight" in name}
    assert plain <= weights
    adapters = {f"GPT2LMHeadModel_transformer.h.0.attn.c_attn.lora_{each}.default.weight" for each in "AB"}
    assert weights - plain == adapters
    assert set(trial.tensor_names(collection="gradients")) == {f"gradient/{name}" for name in adapters}


def test_a_generated_batch_is_one_step(tmp_path: Path, made_trainer: MakeTrainer) -> None:
    callback = TensorTrialCallback(tmp_path / "run", save_all=True, **EACH)
    trainer = made_trainer(callback, max_steps=1)

    def generate(model: Any, inputs: Any, *_: Any, **__: Any) -> tuple[Any, ...]:
        model.generate(inputs["input_ids"], max_new_tokens=3, do_sample=False, pad_token_id=0)
        return None, None, None

    trainer.train()
    trainer.prediction_step = generate
    trainer.evaluate()
    assert create_trial(tmp_path / "run").steps(mode=modes.EVAL) == [0, 1, 2]


def test_a_callback_that_is_used_twice_saves_the_first_training_only(
    made_trainer: MakeTrainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    callback = TensorTrialCallback(tmp_path / "run", **EACH)
    made_trainer(callback, max_steps=2).train()
    made_trainer(callback).train()
    assert create_trial(tmp_path / "run").steps(mode=modes.TRAIN) == [1, 2]
    (warning,) = [each.message for each in caplog.records if "nothing is saved of this training" in each.message]
    assert str(tmp_path / "run") in warning


@pytest.mark.parametrize("fails_at", [0, 2])
@pytest.mark.parametrize("how", ["auto_find_batch_size", "train again"])
def test_a_training_that_starts_again_after_an_error_takes_the_place_of_the_first_attempt(
    made_trainer: MakeTrainer, tmp_path: Path, how: str, fails_at: int
) -> None:
    seen: dict[int, Any] = {}

    class Seen(transformers.TrainerCallback):
        def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            seen[state.global_step + 1] = model.transformer.wte.weight.grad.clone().numpy()

    callback = TensorTrialCallback(tmp_path / "run", include_collections=["gradients"], **EACH)
    trainer = made_trainer(callback, gradient_accumulation_steps=1, auto_find_batch_size=how == "auto_find_batch_size")
    trainer.add_callback(Seen())
    step_of, failed = trainer.training_step, []

    def training_step(*args: Any, **options: Any) -> Any:
        if trainer.state.global_step == fails_at and not failed:
            failed.append(True)
            raise RuntimeError("CUDA out of memory.")
        return step_of(*args, **options)

    trainer.training_step = training_step
    if how == "train again":
        with pytest.raises(RuntimeError, match="out of memory"):
            trainer.train()
    trainer.train()
    trial = create_trial(tmp_path / "run")
    assert trial.steps(mode=modes.TRAIN) == [1, 2, 3, 4]
    gradient = trial.tensor("gradient/GPT2LMHeadModel_transformer.wte.weight")
    for step in range(1, 5):
        assert (gradient.value(step, mode=modes.TRAIN) == seen[step]).all()
    assert trial.tensor("hyperparameters/AdamW/group_0/lr").steps(mode=modes.TRAIN) == [1, 2, 3, 4]
    assert trial.tensor("loss").value(4, mode=modes.TRAIN) == trainer.state.log_history[-2]["loss"]


def test_two_callbacks_of_one_trainer_save_a_run_each(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    first, second = (TensorTrialCallback(tmp_path / name, include_collections=["weights"], **EACH) for name in "ab")
    trainer = made_trainer(first, max_steps=2, eval_strategy="steps", eval_steps=1)
    trainer.add_callback(second)
    trainer.train()
    second.close()
    a, b = (create_trial(tmp_path / name) for name in "ab")
    assert a.steps(mode=modes.TRAIN) == b.steps(mode=modes.TRAIN) == [1, 2]
    assert a.steps(mode=modes.EVAL) == b.steps(mode=modes.EVAL) == list(range(6))
    # The Trainer's own PrinterCallback, which runs between the two, removes this from what it logs.
    assert set(a.tensor_names()) - {"total_flos"} == set(b.tensor_names())


def test_training_is_the_same_with_and_without_a_callback(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    plain, hooked = language_model(), language_model()
    made_trainer(None, plain).train()
    made_trainer(TensorTrialCallback(tmp_path / "run", save_all=True, **EACH), hooked).train()
    for name, value in plain.state_dict().items():
        assert torch.equal(value, hooked.state_dict()[name]), name


def test_a_hook_of_your_own_is_used(made_trainer: MakeTrainer, tmp_path: Path) -> None:
    hook = Hook(tmp_path / "run", **EACH)
    callback = TensorTrialCallback(hook=hook)
    made_trainer(callback, max_steps=2).train()
    assert callback.hook is hook
    assert create_trial(tmp_path / "run").steps(mode=modes.TRAIN) == [1, 2]


def test_wrong_arguments_are_refused_at_construction(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"'save_intervall'; .*; did you mean 'save_interval'\?$"):
        TensorTrialCallback(tmp_path / "run", save_intervall=1)
    with Hook(tmp_path / "run", dry_run=True).step(), pytest.raises(ConfigurationError, match="not both"):
        TensorTrialCallback(tmp_path / "run", hook=Hook(tmp_path / "run", dry_run=True))
    with pytest.raises(ConfigurationError, match=r"must be a tensortrial\.hooks\.pytorch\.Hook"):
        TensorTrialCallback(hook="runs/x")


def test_an_old_library_is_refused_in_a_sentence_and_a_new_one_is_noted(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(
        UnsupportedFramework, match=r"transformers 4\.30\.1 is too old .* pip install 'transformers>=5\.0'"
    ):
        check_version("transformers", "4.30.1", oldest="5.0", newest_tested="5.23")
    check_version("transformers", "5.99.0.dev0", oldest="5.0", newest_tested="5.23")
    assert not caplog.records
    check_version("transformers", "6.0", oldest="5.0", newest_tested="5.23")
    assert "transformers 6.0 is newer than 5.23" in caplog.text
