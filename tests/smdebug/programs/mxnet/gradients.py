"""Save the gradients."""

from gluon_job import trained

trial = trained(include_collections=["gradients"])
for name in sorted(trial.tensor_names(collection="gradients")):
    print(name, trial.tensor(name).steps(), trial.tensor(name).value(2).shape)
