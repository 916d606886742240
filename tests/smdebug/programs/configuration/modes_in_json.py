"""Prefix keys of the JSON file with a mode."""

import smdebug.pytorch as smd

from torch_job import ended, registered, train, write_json

write_json({"save_interval": "4", "train.save_interval": "2", "eval.save_steps": "1"})
hook = smd.Hook.create_from_json_file("hook.json")
model, loss = registered(hook)
for mode in (smd.modes.TRAIN, smd.modes.EVAL, smd.modes.GLOBAL):
    hook.set_mode(mode)
    train(model, loss, 5)
tensor = ended(hook).tensor("MSELoss_output_0")
print([tensor.steps(mode=mode) for mode in (smd.modes.TRAIN, smd.modes.EVAL)])
