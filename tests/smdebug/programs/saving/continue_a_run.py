"""Continue the run of a process that has ended."""

import os

from smdebug.trials import create_trial

from torch_job import trained

if not (child := os.fork()):
    trained(2)
    os._exit(0)
os.waitpid(child, 0)
try:
    trained(2, resume=True)
except Exception:
    print("refused")
print(create_trial("run").steps())
