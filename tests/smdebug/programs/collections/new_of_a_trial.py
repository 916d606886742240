"""Make a collection while analyzing, to match names with."""

from torch_job import trained

trial = trained(1, include_collections=["weights", "biases"])
collection = trial.collection("mine")
collection.include("weight")
print(trial.tensor_names(collection=collection), trial.tensor_names(collection="mine"))
