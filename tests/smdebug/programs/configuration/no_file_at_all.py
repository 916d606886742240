"""Ask for a hook where no configuration exists."""

import smdebug.pytorch as smd

print(smd.get_hook(create_if_not_exists=True))
