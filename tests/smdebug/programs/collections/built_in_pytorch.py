"""List the collections that PyTorch's hook has from the beginning."""

import smdebug.pytorch as smd

hook = smd.Hook("run")
print(sorted(hook.get_collections()))
