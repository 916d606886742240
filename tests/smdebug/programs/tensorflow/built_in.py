"""List the collections that Keras's hook has from the beginning."""

import smdebug.tensorflow as smd

print(sorted(smd.KerasHook("run").get_collections()))
