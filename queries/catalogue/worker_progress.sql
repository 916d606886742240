-- Which step did each worker save last?
-- No parameters. Columns: worker, last_step (the last global step that it saved), saved_at (when it saved that).

select worker, max(global_step) as last_step, max(saved_at) as saved_at
from catalogue.steps
group by worker
