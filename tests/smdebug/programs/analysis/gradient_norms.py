"""Plot-ready norms of all gradients, step by step."""

import numpy as np

from torch_job import trained

trial = trained(5, save_interval=2, include_collections=["gradients"])
for name in sorted(trial.tensor_names(collection="gradients")):
    tensor = trial.tensor(name)
    print(name, [round(float(np.linalg.norm(tensor.value(step))), 3) > 0 for step in tensor.steps()])
