"""Give a start_step after end_step."""

import smdebug.pytorch as smd

try:
    smd.SaveConfig(save_interval=1, start_step=9, end_step=3)
    print("accepted")
except ValueError:
    print("refused")
