"""Set and delete the hook of the process."""

import smdebug.pytorch as smd

hook = smd.Hook("run")
smd.del_hook()
print(smd.get_hook())
smd.set_hook(hook)
print(smd.get_hook() is hook)
