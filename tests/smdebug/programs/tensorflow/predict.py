"""Save the steps of `predict` in mode PREDICT."""

from smdebug.trials import create_trial

from keras_job import compiled, hooked, x

hook, model = hooked(include_collections=["weights"])
compiled(model).predict(x, batch_size=4, verbose=0, callbacks=[hook])
hook.close()
trial = create_trial("run")
print([mode.name for mode in trial.modes()], trial.steps())
print(sorted(trial.tensor_names()))
