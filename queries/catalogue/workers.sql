-- Which workers saved anything?
-- No parameters. Columns: worker.

select distinct worker
from catalogue.steps
