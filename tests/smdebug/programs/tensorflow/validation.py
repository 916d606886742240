"""Save the steps of the validation in `fit`."""

import smdebug.tensorflow as smd
from smdebug.trials import create_trial

from keras_job import compiled, hooked, x, y

hook, model = hooked()
compiled(model).fit(
    x, y, batch_size=4, epochs=2, verbose=0, validation_data=(x, y), validation_batch_size=6, callbacks=[hook]
)
hook.close()
trial = create_trial("run")
print(trial.steps(mode=smd.modes.TRAIN), trial.steps(mode=smd.modes.EVAL))
print(sorted(trial.tensor_names()))
