"""Query names of a collection, by its name and by the object."""

from torch_job import trained

trial = trained(1, include_collections=["weights", "biases"])
print(sorted(trial.tensor_names(collection="biases")))
print(sorted(trial.tensor_names(collection=trial.collection("biases"))))
