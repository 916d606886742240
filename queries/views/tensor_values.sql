-- View `tensor_values`: raw values as bytes, one row a part of a value.
-- Columns: run, and the columns of a chunk, of which value is the last.

select *
from catalogue.tensor_values
