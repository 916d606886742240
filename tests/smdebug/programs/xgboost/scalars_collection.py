"""List `scalars` in include_collections."""

from boosting_job import trained

trial = trained(2, include_collections=["scalars"])
print(sorted(trial.tensor_names()))
