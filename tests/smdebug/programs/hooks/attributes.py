"""Read attributes of a hook that scripts use."""

import smdebug.pytorch as smd

hook = smd.Hook("run", save_all=True, include_collections=["weights"])
print(hook.out_dir, hook.save_all, hook.mode.name, hook.worker)
print("weights" in hook.include_collections, hook.tensorboard_dir)
