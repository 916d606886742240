"""Save every second batch of `fit`."""

import smdebug.tensorflow as smd

from keras_job import fit, hooked

hook, model = hooked(save_interval=2)
trial = fit(hook, model)
print(trial.steps(), trial.steps(mode=smd.modes.TRAIN))
