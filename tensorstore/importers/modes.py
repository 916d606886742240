"""The words by which other programs name the modes of steps."""

from __future__ import annotations

from ..mode import ModeKeys

MODES = "modes"
"""The key of a run's metadata that lists its modes in the order in which its global steps count them."""

MODE_OF_WORD = {
    **dict.fromkeys(("train", "training"), ModeKeys.TRAIN),
    **dict.fromkeys(("validation", "val", "valid", "eval", "evaluation", "test", "testing"), ModeKeys.EVAL),
    **dict.fromkeys(("predict", "prediction", "inference"), ModeKeys.PREDICT),
    "global": ModeKeys.GLOBAL,
}
PREFERENCE = list(MODE_OF_WORD)
"""The words in order of preference. If a mode has several words, only the first one's tensors get no prefix."""
