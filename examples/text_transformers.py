"""Fine-tune a small language model with the Trainer of transformers, and look at what it learned, from the run.

python examples/text_transformers.py
"""

from __future__ import annotations

import logging
import os
import shutil
import sys

OUT_DIR = "runs/text"
# The model is made from a configuration, and the text is this file.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def train(out_dir: str) -> None:
    import torch
    import transformers

    from tensortrial.hooks.pytorch import ReductionConfig, SaveConfig
    from tensortrial.hooks.transformers import TensorTrialCallback

    torch.manual_seed(0)
    with open(__file__, "rb") as file:
        characters = torch.tensor(list(file.read()))
    texts = [{"input_ids": each, "labels": each} for each in characters.unfold(0, 32, 8)]
    config = transformers.GPT2Config(
        vocab_size=256, n_embd=32, n_layer=2, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0, use_cache=False
    )
    arguments = transformers.TrainingArguments(
        output_dir="runs/text_checkpoints",
        max_steps=60,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        learning_rate=3e-3,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    callback = TensorTrialCallback(
        out_dir,
        include_collections=["weights", "gradients"],
        save_config=SaveConfig(save_interval=10),
        reduction_config=ReductionConfig(["mean", "std"], norms=["l2"]),
    )
    transformers.Trainer(
        transformers.GPT2LMHeadModel(config),
        arguments,
        train_dataset=texts[:-16],
        eval_dataset=texts[-16:],
        callbacks=[callback],
    ).train()
    callback.close()


def show(out_dir: str) -> None:
    import tensortrial

    trial = tensortrial.create_trial(out_dir)
    for name in ("loss", "eval_loss"):
        tensor = trial.tensor(name)
        values = {step: round(float(tensor.value(step, mode="TRAIN")), 3) for step in tensor.steps(mode="TRAIN")}
        print(f"{name}: {values}")
    print("\nthe largest gradients of the last step, by their norm:")
    for name, norm in trial.sql(
        "select name, value from reductions where name like 'gradient/%' and reduction = 'l2' and mode = 'TRAIN' "
        "and mode_step = 60 order by value desc limit 5"
    ):
        print(f"  {norm:8.4f}  {name}")


def main() -> int:
    logging.basicConfig(level=logging.WARNING)
    shutil.rmtree(OUT_DIR, ignore_errors=True)
    train(OUT_DIR)
    show(OUT_DIR)
    print(f"\nSee it in the browser: tensortrial page {OUT_DIR}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
