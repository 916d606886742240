"""Invoke a rule that defines nothing."""

from smdebug.rules import Rule

from torch_job import trained

trial = trained(1)
try:
    Rule(trial, "").invoke_at_step(0)
    print("accepted")
except Exception as error:
    print("refused", type(error).__name__)
