"""Get the hook of the process."""

import smdebug.pytorch as smd

print(smd.get_hook())
hook = smd.Hook("run")
print(smd.get_hook() is hook)
