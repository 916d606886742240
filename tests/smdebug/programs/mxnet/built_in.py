"""List the collections that MXNet's hook has from the beginning."""

import smdebug.mxnet as smd

print(sorted(smd.Hook("run").get_collections()))
