"""Save the steps of `evaluate` in mode EVAL."""

import smdebug.tensorflow as smd
from smdebug.trials import create_trial

from keras_job import compiled, hooked, x, y

hook, model = hooked()
compiled(model).evaluate(x, y, batch_size=4, verbose=0, callbacks=[hook])
hook.close()
trial = create_trial("run")
print([mode.name for mode in trial.modes()], trial.steps(mode=smd.modes.EVAL))
print(*sorted(trial.tensor_names()), sep="\n")
