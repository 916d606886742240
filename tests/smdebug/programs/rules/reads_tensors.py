"""Read tensors in a rule, also those of earlier steps."""

from smdebug.rules import Rule, invoke_rule

from torch_job import trained


class Loss(Rule):
    def __init__(self, base_trial):
        super().__init__(base_trial, action_str="")
        self.seen = []

    def invoke_at_step(self, step):
        tensor = self.base_trial.tensor("MSELoss_output_0")
        self.seen.append((step, tensor.prev_steps(step, 2), tensor.value(step).ndim))
        return False


trial = trained(3)
rule = Loss(trial)
invoke_rule(rule, end_step=3)
print(rule.seen)
