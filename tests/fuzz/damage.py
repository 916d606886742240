"""Damages to the files of a run, drawn from a random generator."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.runs import forge_file

Damage = Callable[[Path, Random], str]
"""Changes a run, and returns what it did in words; "" where it found nothing to do. Raises OSError without a file."""


def files_of(run: Path) -> list[Path]:
    return sorted(file for file in run.rglob("*") if file.is_file())


def _any(run: Path, rng: Random, pattern: str = "**/*") -> Path:
    found = sorted(file for file in run.glob(pattern) if file.is_file())
    if not found:
        raise FileNotFoundError(pattern)
    return rng.choice(found)


def _parquet(run: Path, rng: Random) -> Path:
    return _any(run, rng, rng.choice(["index/**/*.parquet", "tensors/**/*.parquet", "findings/*.parquet"]))


def flip_bits(run: Path, rng: Random) -> str:
    file = _parquet(run, rng) if rng.random() < 0.8 else _any(run, rng)
    if not (data := bytearray(file.read_bytes())):
        return ""
    # Half of them near the end: footers say where all else is.
    first = max(0, len(data) - 4000) if rng.random() < 0.5 else 0
    bits = [(rng.randrange(first, len(data)), rng.randrange(8)) for _ in range(rng.choice([1, 1, 1, 2, 5]))]
    for position, bit in bits:
        data[position] ^= 1 << bit
    file.write_bytes(data)
    return f"flips bits {bits} of {file.relative_to(run)}"


def overwrite(run: Path, rng: Random) -> str:
    file = _parquet(run, rng)
    if not (data := bytearray(file.read_bytes())):
        return ""
    begin, length = rng.randrange(len(data)), rng.choice([1, 4, 16, 512])
    piece = bytes(length) if rng.random() < 0.5 else rng.randbytes(length)
    data[begin : begin + length] = piece[: len(data) - begin]
    file.write_bytes(data)
    return f"overwrites {length} bytes at {begin} of {file.relative_to(run)}"


def change_length(run: Path, rng: Random) -> str:
    file = _parquet(run, rng)
    if len(data := file.read_bytes()) < 8:
        return ""
    length = rng.choice([0, 1, rng.randrange(len(data)), len(data), len(data) + 1, (1 << 31) - 1, (1 << 32) - 1])
    file.write_bytes(data[:-8] + length.to_bytes(4, "little") + data[-4:])
    return f"says {length} for the length of the footer of {file.relative_to(run)}"


def truncate(run: Path, rng: Random) -> str:
    file = _any(run, rng)
    size = rng.choice([0, rng.randrange(file.stat().st_size + 1)])
    file.write_bytes(file.read_bytes()[:size])
    return f"cuts {file.relative_to(run)} to {size} bytes"


def append(run: Path, rng: Random) -> str:
    file = _any(run, rng)
    piece = rng.choice([b"\0" * 100, b"PAR1", b"}", rng.randbytes(50)])
    file.write_bytes(file.read_bytes() + piece)
    return f"appends {len(piece)} bytes to {file.relative_to(run)}"


def remove(run: Path, rng: Random) -> str:
    file = _any(run, rng)
    file.unlink()
    kind = rng.choice(["nothing", "a folder", "a link"])
    if kind == "a folder":
        file.mkdir()
    elif kind == "a link":
        file.symlink_to(rng.choice([file.parent / "nowhere", file.parent, Path("/etc/passwd"), Path("/dev/null")]))
    return f"replaces by {kind} the file {file.relative_to(run)}"


def swap_index(run: Path, rng: Random) -> str:
    return _swap(run, rng, "index/**/*.parquet")


def swap_kinds(run: Path, rng: Random) -> str:
    one, other = _any(run, rng, "index/**/*.parquet"), _any(run, rng, "tensors/**/*.parquet")
    return _exchange(run, one, other)


def swap_chunks(run: Path, rng: Random) -> str:
    return _swap(run, rng, "tensors/**/*.parquet")


def swap_documents(run: Path, rng: Random) -> str:
    return _swap(run, rng, "**/*.json")


def _swap(run: Path, rng: Random, pattern: str) -> str:
    return _exchange(run, _any(run, rng, pattern), _any(run, rng, pattern))


def _exchange(run: Path, one: Path, other: Path) -> str:
    if one == other:
        return ""
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    return f"swaps {one.relative_to(run)} and {other.relative_to(run)}"


def copy(run: Path, rng: Random) -> str:
    file = _any(run, rng)
    name = rng.choice(
        ["copy" + file.suffix, "00000000-00000099.parquet", "99999999.parquet", "\x1b[31m.json", "é.json"]
    )
    shutil.copy(file, file.parent / name)
    return f"copies {file.relative_to(run)} to {name!r} next to it"


_VALUES: list[Any] = [
    None, True, 0, -1, 5, 0.5, 1e308, 1 << 40, 10**30, "", "2", "x", "../..", "\u202e\x1b[2J", [], [5], {}, {"a": 1},
    [[[]]], "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-13-45",
]  # fmt: skip
_TEXTS = [
    "",
    "[",
    "{" * 5000,
    '{"a":' * 5000,
    "[" * 5000 + "]" * 5000,
    "NaN",
    "null",
    "\x00",
    '{"a": 1, "a": 2}',
    "1" * 5000,
]


def change_json(run: Path, rng: Random) -> str:
    file = _any(run, rng, "**/*.json")
    if rng.random() < 0.3:
        text = rng.choice(_TEXTS)
        file.write_text(text)
        return f"writes {text[:20]!r} into {file.relative_to(run)}"
    document = json.loads(file.read_text())
    where, holder, key = "", document, None
    while isinstance(holder, dict | list) and holder:
        parent = holder
        key = rng.choice(sorted(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        where += f"[{key!r}]"
        holder = parent[key]
        if rng.random() < 0.6:
            break
    if key is None:
        return ""
    value = rng.choice(_VALUES)
    if rng.random() < 0.2:
        del parent[key]
        what = "removes"
    else:
        parent[key] = value
        what = f"puts {value!r} into"
    file.write_text(json.dumps(document))
    return f"{what} {where} of {file.relative_to(run)}"


_NUMBERS = [-(1 << 63), -1, 0, 1, 3, 15, 16, 1 << 20, 1 << 31, (1 << 63) - 1]
_CELLS = {
    "name": ["", "other", "\x1b[31m", "loss"],
    "mode": ["", "DREAM", "EVAL"],
    "worker": ["", "worker_9", "../..", "worker_1"],
    "dtype": ["", "float128", "object", "O", "V0", "U999999999", '["a"]', "[" * 5000, "int4", "datetime64[ns]", "x8"],
    "chunk": ["", "tensors", "../../etc/passwd", "tensors/../x.parquet", "/etc/passwd", "tensors/a/b/c.parquet"],
    "shape": [[], [-1], [1 << 40], [1 << 62, 4], [0], [3, 4, 5], [1 << 31, 1 << 31, 4]],
    "collections": [[], [""], ["x"] * 50],
}  # fmt: skip


def forge_rows(run: Path, rng: Random) -> str:
    file = _any(run, rng, "index/**/*.parquet")
    data = file.read_bytes()
    metadata = pq.read_metadata(pa.BufferReader(data)).metadata
    table = pq.ParquetFile(pa.BufferReader(data)).read()
    rows, names = table.to_pylist(), []
    for _ in range(rng.choice([1, 1, 3])):
        row, field = rng.randrange(len(rows)), rng.choice(list(table.schema))
        if pa.types.is_timestamp(field.type) or pa.types.is_struct(field.type):
            continue
        cells = _CELLS.get(field.name) or (_NUMBERS if pa.types.is_integer(field.type) else [0.5, float("nan"), 1e308])
        cells = [None, *cells] if field.nullable else cells
        cell = rng.choice(cells)
        if pa.types.is_int32(field.type) and isinstance(cell, int):
            cell = max(-(1 << 31), min(cell, (1 << 31) - 1))
        rows[row][field.name] = cell
        names.append(f"{field.name}={cell!r:.40} in row {row}")
    forged = pa.Table.from_pylist(rows, table.schema).replace_schema_metadata(metadata)
    forge_file(run, file, forged)
    return f"forges {', '.join(names)} of {file.relative_to(run)}"


def forge_footer(run: Path, rng: Random) -> str:
    file = _any(run, rng, "index/**/*.parquet")
    data = file.read_bytes()
    metadata = dict(pq.read_metadata(pa.BufferReader(data)).metadata)
    key = rng.choice(sorted(metadata))
    if rng.random() < 0.3:
        metadata[key] = rng.choice([b"", b"[", b"[" * 50_000, b"null", b"\xff", b"NaN", b"9" * 5000, b"{}"])
    else:
        value = json.loads(metadata[key])
        if not isinstance(value, list) or not value:
            return ""
        value[rng.randrange(len(value))] = rng.choice(_VALUES)
        metadata[key] = json.dumps(value).encode()
    table = pq.ParquetFile(pa.BufferReader(data)).read()
    forge_file(run, file, table.replace_schema_metadata(metadata))
    return f"forges {key.decode()} in the footer of {file.relative_to(run)}"


def foreign(run: Path, rng: Random) -> str:
    file = _parquet(run, rng)
    name = rng.choice([file.name, "77777777.parquet"])
    choices: list[dict[str, list[object]]]
    choices = [{"a": [1]}, {"name": [1], "global_step": ["x"]}, {"name": ["w"], "global_step": [0]}, {}]
    columns = rng.choice(choices)
    pq.write_table(pa.table(columns), file.parent / name)
    return f"puts a foreign file with the columns {list(columns)} at {file.parent.relative_to(run)}/{name}"


COUNTED: dict[str, Damage] = {
    # Where it was all of a worker, another's value is then the first.
    "removed files": remove,
    # With the checksums of a careful forger.
    "forged rows": forge_rows,
    "forged footers": forge_footer,
}
"""What may leave no trace."""
NOTICED: dict[str, Damage] = {
    "bits": flip_bits,
    "bytes": overwrite,
    "swapped chunks": swap_chunks,
    "lengths": change_length,
    "truncation": truncate,
    "appended bytes": append,
    "swapped index files": swap_index,
    "swapped kinds of files": swap_kinds,
    "swapped documents": swap_documents,
    "copies": copy,
    "changed JSON": change_json,
    "foreign files": foreign,
}
DAMAGES = {**COUNTED, **NOTICED}


def damage(run: Path, rng: Random) -> list[tuple[str, str]]:
    """Damage a run in one way, seldom in several. Return the kinds of damage, each with what was done."""
    done: list[tuple[str, str]] = []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.choice([*DAMAGES, "bits", "bits", "changed JSON", "forged rows"])
        try:
            said = DAMAGES[kind](run, rng)
        except (pa.ArrowException, OSError, ValueError, TypeError):
            continue  # there is no such file, or what was damaged before cannot be damaged with care
        if said:
            done.append((kind, said))
    return done
