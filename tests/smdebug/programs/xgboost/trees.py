"""Save the trees of each round."""

from boosting_job import trained

trial = trained(2, include_collections=["trees"])
for name in sorted(trial.tensor_names(collection="trees")):
    print(name, trial.tensor(name).value(1).shape, trial.tensor(name).value(1).dtype.kind)
