"""Save the tensors of a hybridized block."""

from gluon_job import hooked, train

hook, net = hooked(include_collections=["weights"])
net.hybridize()
trial = train(hook, net)
print(sorted(trial.tensor_names()), trial.steps())
