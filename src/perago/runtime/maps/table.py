"""Reads and writes whole tables as CSV, JSON Lines or Parquet, depending on the file's suffix.

An invalid table is rejected before anything runs, with an error that names the invalid line.  A table is written to a
temporary file and then renamed, so that readers never see a partial one.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from perago.errors import RuntimeConfigError

Record = Mapping[str, Any]
FORMATS = {".csv": "csv", ".jsonl": "json", ".ndjson": "json", ".json": "json", ".parquet": "parquet"}
_LONGEST_CELL = 64 * 1024 * 1024


def format_of(path: Path) -> str:
    """Return the table format for a file name.  Raises `RuntimeConfigError` for an unknown suffix."""
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise RuntimeConfigError(f"{path}: the name of a table ends in {', '.join(FORMATS)}; rename it")
    return found


def read_table(path: Path) -> list[Record]:
    """Read the rows of a table.  CSV cells are returned as text.  Raises `RuntimeConfigError` for an invalid table."""
    kind = format_of(path)
    try:
        rows = list(_READERS[kind](path))
    except FileNotFoundError:
        raise RuntimeConfigError(f"there is no table {path}; correct the path") from None
    except UnicodeDecodeError as error:
        raise RuntimeConfigError(
            f"{path}: byte {error.start} is not UTF-8; save the table as UTF-8"
        ) from None
    except OSError as error:
        raise RuntimeConfigError(f"table {path} cannot be read: {error.strerror or error}") from error
    if not rows:
        raise RuntimeConfigError(f"{path}: the table has no rows")
    return rows


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Record]) -> None:
    """Write a table, replacing an existing file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _WRITERS[format_of(path)](temporary, columns, rows)
        os.replace(temporary, path)
    except OSError as error:
        raise RuntimeConfigError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _read_csv(path: Path) -> Iterator[Record]:
    csv.field_size_limit(_LONGEST_CELL)
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            header = next(reader, [])
            twice = sorted({name for name in header if header.count(name) > 1})
            if twice:
                raise RuntimeConfigError(f"{path}: column {twice[0]!r} appears twice; rename one")
            for cells in reader:
                if cells and len(cells) != len(header):
                    raise RuntimeConfigError(
                        f"{path}: line {reader.line_num} has {len(cells)} cells, and the header {len(header)}"
                    )
                if cells:
                    yield dict(zip(header, cells, strict=True))
        except csv.Error as error:
            raise RuntimeConfigError(f"{path}: line {reader.line_num}: {error}") from None


def _read_json(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise RuntimeConfigError(f"{path}: line {number} is not JSON: {error}") from None
            if not isinstance(row, dict):
                raise RuntimeConfigError(
                    f"{path}: line {number} is not a JSON object; write one object a line"
                )
            yield row


def _read_parquet(path: Path) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise RuntimeConfigError(f"{path} is not a Parquet table: {error}") from None
    yield from table.to_pylist()


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Record]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([_cell(row.get(name)) for name in columns] for row in rows)


def _write_json(path: Path, columns: Sequence[str], rows: Iterable[Record]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps({name: row.get(name) for name in columns}, ensure_ascii=False) + "\n")


def _write_parquet(path: Path, columns: Sequence[str], rows: Iterable[Record]) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    # Write objects as JSON text: their fields differ between rows, but a column has one type.
    flat = [{name: _flat(row.get(name)) for name in columns} for row in rows]
    parquet.write_table(pyarrow.Table.from_pylist(flat), path)


def _flat(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else value


def _cell(value: Any) -> Any:
    return "" if value is None else _flat(value)


_READERS = {"csv": _read_csv, "json": _read_json, "parquet": _read_parquet}
_WRITERS = {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}
