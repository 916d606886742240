"""Count the steps of a mode."""

import smdebug.mxnet as smd

from gluon_job import hooked, train

hook, net = hooked()
hook.set_mode(smd.modes.TRAIN)
trial = train(hook, net)
print([mode.name for mode in trial.modes()], trial.steps(mode=smd.modes.TRAIN))
