"""Make configurations by the package without a framework."""

import smdebug as smd

print(smd.SaveConfig(save_interval=2).get_save_config(smd.modes.TRAIN).save_interval)
print(list(smd.ReductionConfig(norms=["l1"]).norms))
