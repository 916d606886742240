"""Save the tensors whose names match a regex."""

from boosting_job import trained

trial = trained(1, include_regex=["^feature_importance/weight/f0$"])
print(sorted(trial.tensor_names()))
