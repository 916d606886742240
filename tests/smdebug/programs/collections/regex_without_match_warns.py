"""Log a warning of a regex that matches no tensor of the first saved step."""

import logging

from torch_job import hooked, train


class Counter(logging.Handler):
    count = 0

    def emit(self, record):
        self.count += "Lineer_weight" in record.getMessage()


counter = Counter()
logging.getLogger().addHandler(counter)
hook, model, loss = hooked(include_regex=["Lineer_weight"])
train(model, loss, 3)
hook.close()
print(counter.count)
