-- View `tiled`: the rows of some index files, for the tiles of the page. It is no public view.
-- Columns: those of `tensors`.

select *
from catalogue.tiled
