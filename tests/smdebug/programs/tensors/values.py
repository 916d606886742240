"""Read the values of all steps."""

from torch_job import trained

trial = trained(5, save_interval=2, include_regex=["Linear_input"])
values = trial.tensor("Linear_input_0").values()
print(type(values).__name__, {step: value.shape for step, value in values.items()})
