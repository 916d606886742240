"""Get the hook of the process."""

import smdebug.xgboost as smd

hook = smd.Hook("run")
print(smd.get_hook() is hook)
