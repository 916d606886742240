"""Give a hook an argument that it does not have."""

import smdebug.pytorch as smd

try:
    smd.Hook("run", save_every=3)
    print("accepted")
except TypeError:
    print("TypeError")
