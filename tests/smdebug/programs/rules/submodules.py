"""Import a rule's class and its invoker from their modules."""

from smdebug.rules import Rule, invoke_rule
from smdebug.rules.rule import Rule as Same
from smdebug.rules.rule_invoker import invoke_rule as invoke

print(Rule is Same, invoke is invoke_rule)
