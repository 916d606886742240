-- What is the number of steps of workers that are known, up to a global step?
-- Parameters: $step. Columns: rows.

select count(*) as rows
from catalogue.steps
where global_step <= $step
