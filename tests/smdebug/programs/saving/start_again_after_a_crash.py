"""Start a job again that was killed, with the same folder."""

import os

from torch_job import hooked, train, trained

if not (child := os.fork()):
    _, model, loss = hooked()
    train(model, loss, 4)
    os._exit(1)
os.waitpid(child, 0)
print(trained(4).steps())
