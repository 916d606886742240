"""Set a mode that is none."""

import smdebug.pytorch as smd

hook = smd.Hook("run")
try:
    hook.set_mode("train")
    print("accepted")
except Exception as error:
    print("refused", isinstance(error, ValueError))
