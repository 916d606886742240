"""Save the biases."""

from gluon_job import trained

trial = trained(include_collections=["biases"])
for name in sorted(trial.tensor_names(collection="biases")):
    print(name, trial.tensor(name).steps(), trial.tensor(name).value(2).shape)
