"""Translate a step that is unknown."""

import smdebug.pytorch as smd

from torch_job import ended, hooked, train

hook, model, loss = hooked()
hook.set_mode(smd.modes.TRAIN)
train(model, loss, 2)
trial = ended(hook)
for translate in (lambda: trial.mode(50), lambda: trial.mode_step(50), lambda: trial.global_step(smd.modes.TRAIN, 50)):
    try:
        print(translate())
    except Exception as error:
        print("raised", type(error).__name__)
