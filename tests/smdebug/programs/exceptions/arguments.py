"""Raise the exceptions as rules of users do, and read their arguments."""

from smdebug import modes
from smdebug.exceptions import NoMoreData, RuleEvaluationConditionMet, StepUnavailable, TensorUnavailable

for error in (
    TensorUnavailable("x"),
    StepUnavailable(3, modes.TRAIN),
    RuleEvaluationConditionMet("Rule", 7),
    NoMoreData(9, modes.GLOBAL, 5),
):
    print(
        type(error).__name__,
        sorted(name for name in vars(error) if name in ("tname", "step", "mode", "rule_name", "last_step")),
    )
