"""Train a network on scikit-learn's digits with Lightning, and show the run.

python examples/digits_lightning.py
"""

from __future__ import annotations

import logging
import shutil

import tensortrial

OUT_DIR = "runs/digits_lightning"


def train(out_dir: str) -> None:
    import lightning
    import torch
    from sklearn.datasets import load_digits
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader, TensorDataset

    from tensortrial.hooks.lightning import Callback
    from tensortrial.hooks.pytorch import ReductionConfig, SaveConfig

    logging.getLogger("lightning").setLevel(logging.WARNING)
    lightning.seed_everything(0, verbose=False)
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)

    class Digits(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))

        def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> torch.Tensor:
            loss = cross_entropy(self.layers(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], batch_idx: int) -> None:
            self.log("accuracy", (self.layers(batch[0]).argmax(1) == batch[1]).float().mean())

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=3e-3)

    callback = Callback(
        out_dir,
        include_collections=["gradients", "losses"],
        save_config=SaveConfig(save_interval=10),
        reduction_config=ReductionConfig(["mean", "std"], norms=["l2"]),
    )
    trainer = lightning.Trainer(
        max_epochs=5,
        accelerator="cpu",
        callbacks=[callback],
        gradient_clip_val=1.0,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(
        Digits(),
        DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=64),
        DataLoader(TensorDataset(images[1500:], labels[1500:]), batch_size=297),
    )
    callback.close()


def show(out_dir: str) -> None:
    trial = tensortrial.create_trial(out_dir)
    print(trial.sql("select mode_step, value from scalars where name = 'accuracy' and mode = 'TRAIN' order by 1"))
    print("norms of the clipped gradients at the last saved step:")
    norms = (
        "select name, value from reductions where name like 'gradient/%' and reduction = 'l2' "
        "qualify mode_step = max(mode_step) over () order by value desc"
    )
    for name, norm in trial.sql(norms):
        print(f"  {norm:.4f}  {name}")
    print(f"\nSee it in the browser: tensortrial page {out_dir}")


def main() -> None:
    shutil.rmtree(OUT_DIR, ignore_errors=True)
    train(OUT_DIR)
    show(OUT_DIR)


if __name__ == "__main__":
    main()
