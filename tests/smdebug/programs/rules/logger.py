"""Log in a rule."""

from smdebug.rules import Rule, invoke_rule

from torch_job import trained


class Logs(Rule):
    def invoke_at_step(self, step):
        self.logger.debug("step %s", step)
        return False


trial = trained(1)
rule = Logs(trial, "")
invoke_rule(rule, end_step=1)
print(rule.logger is not None)
