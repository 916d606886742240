"""Save the outputs of a block."""

from gluon_job import hooked, train

hook, net = hooked(include_collections=["mine"])
hook.get_collection("mine").add_block_tensors(net[0], inputs=True, outputs=True)
trial = train(hook, net)
print(sorted(trial.tensor_names(collection="mine")))
