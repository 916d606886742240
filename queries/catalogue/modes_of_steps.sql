-- Which mode, and which step of it, was each global step that a worker has saved?
-- Parameters: $run, $worker, $first and $last (global steps, both included). Columns: global_step, mode, mode_step.

select steps.global_step, steps.mode, steps.mode_step
from catalogue.steps
join catalogue.files on files.file_id = steps.file_id
where files.run = $run and steps.worker = $worker and steps.global_step between $first and $last
