"""The export into a folder of Parquet files: `parquet:exports`, `parquet:s3://bucket/exports`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import ExportError
from ...format.arrow_arrays import encoded
from ..tables import columns_of
from .folder import Folder
from .parquet_file import write_parquet

_TAIL_BYTES = 64 << 10


class ParquetFolder(Folder):
    """Parquet files, compressed with zstd, that any engine reads."""

    suffix = ".parquet"

    def _write(self, file: Any, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        write_parquet(file, schema, batches)

    def rows(self, table: str, run: str) -> pa.Table | None:
        with self._named():
            try:
                return pq.ParquetFile(pa.BufferReader(self._storage.read(self._small_file(table, run)))).read()
            except (FileNotFoundError, pa.ArrowException):  # deleted or damaged: it is written again
                return None

    def _stream(self, schema: pa.Schema) -> pa.Schema:
        return encoded(schema)

    def _columns(self, schema: pa.Schema) -> dict[str, str]:
        return columns_of(schema)

    def _read_columns(self, path: str) -> dict[str, str]:
        tail, _ = self._storage.read_tail(path, _TAIL_BYTES)
        needed = int.from_bytes(tail[-8:-4], "little") + 8
        if needed > len(tail):
            tail, _ = self._storage.read_tail(path, needed)
        try:
            # The schema is in the footer, so only the end of the file is read.
            return self._columns(pq.read_schema(pa.BufferReader(b"PAR1" + tail[-needed:])))
        except (pa.ArrowException, OSError) as exc:
            raise ExportError(self._name, f"{path} is not a Parquet file: {exc}") from exc
