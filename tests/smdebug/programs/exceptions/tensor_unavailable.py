"""Ask for a tensor that was not saved."""

from smdebug.exceptions import TensorUnavailable

from torch_job import trained

trial = trained(1)
try:
    trial.tensor("absent")
except TensorUnavailable as error:
    print(type(error).__name__, error.tname)
