-- View `findings`: the findings of rules in the runs.
-- Columns: run, rule, step (global), mode, worker, tensor, observed (the number that crossed the threshold), threshold,
--   sentence, failed (true if the rule itself could not run), found_at.

select run, rule, step, mode, worker, tensor, observed, threshold, sentence, failed, found_at
from catalogue.findings
