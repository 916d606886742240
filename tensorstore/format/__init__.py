"""The files of a run, as docs/format.md describes them."""
