"""Save a scalar as a SageMaker metric before `fit`."""

from keras_job import fit, hooked

hook, model = hooked()
hook.save_scalar("seed", 3.0, sm_metric=True)
trial = fit(hook, model)
print(sorted(trial.tensor_names(collection="sm_metrics")))
