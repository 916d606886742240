"""Train twice in a process, with a hook and a folder each."""

import smdebug.pytorch as smd
from smdebug.trials import create_trial

from torch_job import registered, train

for folder in ("first", "second"):
    hook = smd.Hook(folder, save_config=smd.SaveConfig(save_interval=1))
    train(*registered(hook), 2)
    hook.close()
    print(folder, create_trial(folder).steps())
