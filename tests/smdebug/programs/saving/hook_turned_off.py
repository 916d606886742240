"""Turn the hook off by USE_SMDEBUG=0."""

import os

os.environ["USE_SMDEBUG"] = "0"
import smdebug.pytorch as smd

print(smd.get_hook(create_if_not_exists=True))
