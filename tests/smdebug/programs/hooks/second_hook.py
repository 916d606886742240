"""Make a second hook in the process."""

import smdebug.pytorch as smd

first = smd.Hook("first")
second = smd.Hook("second")
print(smd.get_hook() is first, smd.get_hook() is second)
