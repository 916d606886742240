"""Query names by a regex and a collection at once."""

from torch_job import trained

trial = trained(3, include_collections=["weights"])
try:
    print(trial.tensor_names(regex="Linear", collection="weights"))
except Exception as error:
    print("refused", isinstance(error, ValueError))
