"""Get the hook of the process."""

import smdebug.mxnet as smd

hook = smd.Hook("run")
print(smd.get_hook() is hook)
