"""Match regexes case-sensitively."""

from torch_job import trained

trial = trained(1, include_regex=["linear_output"])
print(sorted(trial.tensor_names()))
