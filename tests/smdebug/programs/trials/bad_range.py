"""Restrict a trial to a range that ends before it starts."""

from smdebug.trials import create_trial

from torch_job import hooked, train

hook, model, loss = hooked()
train(model, loss, 2)
hook.close()
try:
    create_trial("run", range_steps=(6, 3))
    print("accepted")
except Exception:
    print("refused")
