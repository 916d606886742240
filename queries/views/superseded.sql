-- View `superseded`: the tensors that were saved after a step to which the job went back later, one row each.
-- Columns: the same as `tensors`.

select *
from catalogue.superseded as aside
where not exists (
    select 1
    from catalogue.tensors as kept
    where
        kept.run = aside.run
        and kept.worker = aside.worker
        and kept.global_step = aside.global_step
        and kept.name = aside.name
        and kept.saved_at = aside.saved_at
)
