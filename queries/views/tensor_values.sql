-- View `tensor_values`: raw values as bytes, one row a part of a value.
-- Columns: run, and those of a chunk; the last one is value.

select *
from catalogue.tensor_values
