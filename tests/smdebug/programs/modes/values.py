"""Have the enum values that scripts store."""

import smdebug.pytorch as smd
from smdebug import modes

print([(mode.name, mode.value) for mode in smd.modes])
print(smd.modes is modes, smd.modes["TRAIN"] is modes.TRAIN, modes(2).name)
