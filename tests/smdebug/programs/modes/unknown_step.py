"""Translate a step that is unknown."""

import smdebug.pytorch as smd
from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
hook.set_mode(smd.modes.TRAIN)
train(model, loss, 2)
hook.close()
trial = create_trial("run")
for translate in (lambda: trial.mode(50), lambda: trial.mode_step(50), lambda: trial.global_step(smd.modes.TRAIN, 50)):
    try:
        print(translate())
    except Exception as error:
        print("raised", type(error).__name__)
