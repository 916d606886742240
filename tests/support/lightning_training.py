"""A training by Lightning that knows nothing of hooks."""

from __future__ import annotations

SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import torch, lightning

class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, batch_idx):
        loss = self.layer(batch).pow(2).mean()
        self.log("loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    lightning.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, log_every_n_steps=1,
        enable_progress_bar=False, enable_model_summary=False, OPTIONS).fit(
        Net(), torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2))
"""
"""A program in which the word OPTIONS stands for further arguments of the Trainer."""
