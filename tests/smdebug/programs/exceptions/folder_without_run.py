"""Open a folder that holds no run."""

import os

from smdebug.trials import create_trial

os.makedirs("empty/index")
try:
    create_trial("empty")
except Exception as error:
    print("raised", type(error).__name__)
