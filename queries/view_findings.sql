-- View `findings`: what rules found in the run.
-- Columns: rule, step (global), mode, worker, tensor, observed (the number that broke the threshold), threshold, sentence,
--   failed (the rule itself could not run), found_at (UTC).

create or replace view findings as
select rule, step, mode, worker, tensor, observed, threshold, sentence, failed, found_at
from finding_files
