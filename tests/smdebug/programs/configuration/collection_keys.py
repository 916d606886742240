"""Name built-in collections by the enum of their keys."""

import smdebug.pytorch as smd

print(smd.CollectionKeys.WEIGHTS, smd.CollectionKeys.LOSSES == "losses", smd.CollectionKeys.GRADIENTS)
