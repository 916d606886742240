"""Restrict the steps of a tensor by those of its trial."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked(save_interval=2)
train(model, loss, 10)
hook.close()
trial = create_trial("run", range_steps=(2, 7))
tensor = trial.tensor("MSELoss_output_0")
print(tensor.steps(), list(tensor.values()), tensor.prev_steps(6, 5))
