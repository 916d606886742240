"""Give a hook a value of include_workers that it does not know."""

import smdebug.pytorch as smd

try:
    smd.Hook("run", include_workers="some")
    print("accepted")
except ValueError:
    print("refused")
