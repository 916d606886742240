"""Read a value as a numpy array."""

from torch_job import trained

trial = trained(1, include_regex=["Linear_input"])
value = trial.tensor("Linear_input_0").value(0)
print(type(value).__name__, value.dtype, value.shape, value.sum())
