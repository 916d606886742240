"""Ask for the value of a worker that does not exist."""

from torch_job import trained

trial = trained(3, save_interval=2)
try:
    trial.tensor("MSELoss_output_0").value(0, worker="worker_9")
except Exception as error:
    print("raised", type(error).__name__)
