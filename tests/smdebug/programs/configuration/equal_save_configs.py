"""Compare two save configurations."""

import smdebug.pytorch as smd

print(smd.SaveConfig(save_interval=3) == smd.SaveConfig(save_interval=3))
print(smd.SaveConfig(save_interval=3) == smd.SaveConfig(save_interval=4))
