"""The configuration of a Hydra job, as metadata of its runs.

from tensortrial.hooks.hydra import job_metadata

@hydra.main(config_name="train")
def train(config):
    hook = tt.Hook("tensors", metadata=job_metadata(config))
"""

from __future__ import annotations

from .metadata import job_metadata

__all__ = ["job_metadata"]
