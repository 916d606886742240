"""Give a hook a regex that is none."""

from torch_job import hooked, train

try:
    hook, model, loss = hooked(include_regex=["["])
    train(model, loss, 1)
    print("accepted")
except Exception as error:
    print("refused", type(error).__name__)
