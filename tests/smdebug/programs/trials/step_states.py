"""Have the states of a step with the values that scripts store."""

from smdebug.core.tensor import StepState

print([(state.name, state.value) for state in StepState])
