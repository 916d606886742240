"""Call a registered model in several threads."""

from concurrent.futures import ThreadPoolExecutor

import smdebug.pytorch as smd
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4)))
hook = smd.Hook("run", save_all=True, save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
with ThreadPoolExecutor(4) as pool:
    shapes = list(pool.map(lambda _: tuple(model(torch.ones(3, 4)).shape), range(20)))
hook.close()
print(len(shapes), set(shapes))
