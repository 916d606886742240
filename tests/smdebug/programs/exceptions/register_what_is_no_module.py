"""Register an object that is no module."""

import smdebug.pytorch as smd

hook = smd.Hook("run")
try:
    hook.register_module("model")
    print("accepted")
except Exception as error:
    print("refused", isinstance(error, (ValueError, TypeError)))
