"""Record a tensor as a module's output, by the old name of save_tensor."""

import smdebug.pytorch as smd
import torch
from smdebug.trials import create_trial

torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.MSELoss()
hook = smd.Hook("run", include_regex=["extra"], save_config=smd.SaveConfig(save_interval=1))
hook.register_module(model)
hook.register_loss(loss)
for _ in range(2):
    output = model(torch.ones(3, 4))
    hook.record_tensor_value("extra", output)
    loss(output, torch.zeros(3, 2)).backward()
hook.close()
trial = create_trial("run")
print([name for name in trial.tensor_names() if "extra" in name])
print(trial.tensor("extra_output_0").steps())
