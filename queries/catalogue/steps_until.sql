-- What is the number of steps of workers that are known, up to a global step?
-- Parameters: $step. Columns: known.

select count(*) as known
from catalogue.steps
where global_step <= $step
