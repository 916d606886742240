"""Read the shape of a tensor that was saved raw."""

from torch_job import trained

trial = trained(2, include_regex=["Linear_input"])
tensor = trial.tensor("Linear_input_0")
print(tensor.shape(0), tensor.shapes(), type(tensor.shape(1)).__name__)
