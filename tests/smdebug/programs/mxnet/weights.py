"""Save the weights."""

from gluon_job import trained

trial = trained(include_collections=["weights"])
for name in sorted(trial.tensor_names(collection="weights")):
    print(name, trial.tensor(name).steps(), trial.tensor(name).value(2).shape)
