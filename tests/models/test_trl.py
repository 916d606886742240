"""The callback for the Trainer of transformers, in a training by TRL's trainer for supervised fine-tuning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

# Nothing is fetched: the model, its tokenizer and the texts are made here.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")
from tensortrial import Trial, create_trial  # noqa: E402
from tensortrial.hooks.pytorch import SaveConfig, modes  # noqa: E402
from tensortrial.hooks.transformers import TensorTrialCallback  # noqa: E402

torch.set_num_threads(1)
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "tree", "and", "then"]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {word: number for number, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def language_model() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=32,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config)


def texts(count: int) -> Any:
    sentences = [" ".join(WORDS[(first + 5 * i) % len(WORDS)] for i in range(4 + first % 3)) for first in range(count)]
    return datasets.Dataset.from_dict({"text": sentences})


@pytest.fixture(params=[False, True], ids=["stored", "computed again"])
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Trial]:
    """Train for four updates, each of two batches of two texts, with an evaluation of three batches after two.

    Activations are stored, or, as is TRL's default, computed again for the gradients.
    """
    callback = TensorTrialCallback(
        tmp_path / "run",
        include_collections=["weights", "gradients"],
        include_regex=["mlp_output"],
        save_config=SaveConfig(save_interval=1),
    )
    arguments = trl.SFTConfig(
        output_dir=str(tmp_path / "out"),
        max_steps=4,
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=2,
        logging_steps=1,
        learning_rate=0.01,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=None,  # TRL sets it, and transformers warns of its name
        activation_checkpointing=request.param,
        disable_tqdm=True,
        dataloader_pin_memory=False,
        max_length=16,
    )
    trainer = trl.SFTTrainer(
        language_model(),
        arguments,
        train_dataset=texts(16),
        eval_dataset=texts(5),
        processing_class=tokenizer(),
        callbacks=[callback],
    )
    trainer.train()
    callback.close()
    return trainer, create_trial(tmp_path / "run")


def test_fine_tuning_by_trl_is_saved_like_any_training(trained: tuple[Any, Trial]) -> None:
    trainer, trial = trained
    assert trial.steps(mode=modes.TRAIN) == [1, 2, 3, 4]
    for name in ("loss", "grad_norm", "mean_token_accuracy", "eval_loss", "eval_mean_token_accuracy"):
        logged = {log["step"]: log[name] for log in trainer.state.log_history if name in log}
        assert list(logged) == ([2, 4] if name.startswith("eval") else [1, 2, 3, 4])
        saved = trial.tensor(name).values(modes.TRAIN)
        assert saved == pytest.approx(logged)
    # Five texts in batches of two, after steps 2 and 4.
    assert trial.steps(mode=modes.EVAL) == [0, 1, 2, 3, 4, 5]
    assert trial.tensor("gradient/LlamaForCausalLM_lm_head.weight").steps(modes.TRAIN) == [1, 2, 3, 4]
    # One for each of the batches that an update accumulates.
    outputs = [name for name in trial.tensor_names() if "mlp_output" in name]
    assert outputs == ["model.layers.0.mlp_output_0", "model.layers.0.mlp_output_1"]
    assert all(trial.tensor(name).steps(modes.TRAIN) == [1, 2, 3, 4] for name in outputs)
