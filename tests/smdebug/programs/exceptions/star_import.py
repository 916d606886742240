"""Import all exceptions by a star."""

from smdebug.exceptions import *

print(
    sorted(
        error.__name__
        for error in (
            TensorUnavailableForStep,
            TensorUnavailable,
            StepUnavailable,
            StepNotYetAvailable,
            NoMoreData,
            RuleEvaluationConditionMet,
            MissingCollectionFiles,
            InvalidWorker,
            ShapeUnavailableForStep,
        )
    )
)
