"""Ask for a collection without creating it."""

import smdebug.pytorch as smd

hook = smd.Hook("run")
try:
    print(hook.get_collection("mine", create=False))
except Exception as error:
    print("raised", type(error).__name__, isinstance(error, KeyError))
