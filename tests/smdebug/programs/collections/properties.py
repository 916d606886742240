"""Read and set the properties of a collection."""

import smdebug.pytorch as smd

hook = smd.Hook("run", save_config=smd.SaveConfig(save_interval=7))
collection = hook.get_collection("mine")
print(collection.name, list(collection.include_regex), sorted(collection.tensor_names), collection.save_histogram)
collection.include_regex = ["a", "b"]
collection.save_histogram = False
collection.include("c")
print(list(collection.include_regex), collection.save_histogram)
