"""Save the outputs of one layer."""

from keras_job import fit, hooked

hook, model = hooked(include_collections=["mine"])
hook.get_collection("mine").add_keras_layer(model.layers[0])
trial = fit(hook, model)
print(sorted(trial.tensor_names(collection="mine")))
