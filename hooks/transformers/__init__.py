"""The callback for the Trainer of Hugging Face transformers.

from tensortrial.hooks.transformers import TensorTrialCallback

trainer = Trainer(model, args, …, callbacks=[TensorTrialCallback("runs/bert", include_collections=["gradients"])])

Importing this module also makes `TrainingArguments(report_to="tensortrial")` known to transformers.
"""

from __future__ import annotations

from .callback import TensorTrialCallback

__all__ = ["TensorTrialCallback"]
