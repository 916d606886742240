"""The modes of steps, as other programs name them."""

from __future__ import annotations

from ..mode import ModeKeys

MODES = "modes"
"""The key of a run's metadata with the names of the modes that its global steps count through."""

MODE_OF_WORD = {
    **dict.fromkeys(("train", "training"), ModeKeys.TRAIN),
    **dict.fromkeys(("validation", "val", "valid", "eval", "evaluation", "test", "testing"), ModeKeys.EVAL),
    **dict.fromkeys(("predict", "prediction", "inference"), ModeKeys.PREDICT),
    "global": ModeKeys.GLOBAL,
}
PREFERENCE = list(MODE_OF_WORD)
"""The words by priority: tensors of the first word of a mode keep their names, those of others get a prefix."""
