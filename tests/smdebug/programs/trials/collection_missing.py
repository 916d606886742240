"""Ask a trial for its gradients if none were saved."""

from torch_job import trained

trial = trained(1)
print(trial.tensor_names(collection="gradients"), trial.collection("gradients").name)
