"""A look into a Parquet file by pyarrow: its schema and first rows, from its footer and its first pages alone.

The rule: bytes are read by ranges, and no more of them than a bound, so a file of any size, or one that lies about its own,
costs as little as any other.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from perago.errors import install_extra
from perago.ui.previews.texts import COLUMNS, Table, cut

ROWS = 50
MOST_BYTES = 32 * 1024 * 1024
_BUFFER = 64 * 1024


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a schema."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class ParquetLook:
    """What the footer says, and the first rows."""

    rows: int
    row_groups: int
    columns: Sequence[Column]
    table: Table
    created_by: str
    read: int
    size: int
    """How many bytes the look took, and how many there are."""


def look_into(part: Callable[[int, int], bytes], size: int) -> ParquetLook | str:
    """The look, or a sentence that says why there is none; `part` gives bytes from a place on."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return f"Looking into Parquet needs pyarrow: `{install_extra('ui')}`."
    source = _Ranged(part, size)
    try:
        with pq.ParquetFile(
            pa.PythonFile(source, mode="r"), buffer_size=_BUFFER, pre_buffer=False, memory_map=False
        ) as file:
            return _look(file, source)
    except _TooMuch:
        return "Its first rows are too large to be shown here."
    except (pa.ArrowException, OSError, ValueError, UnicodeError, MemoryError) as error:
        return f"It cannot be read as Parquet: {cut(error)}"


def _look(file: Any, source: _Ranged) -> ParquetLook:
    schema, footer = file.schema_arrow, file.metadata
    names = [field.name for field in schema]
    shown = _distinct(names)[:COLUMNS]
    rows: list[Sequence[str]] = []
    if footer.num_rows and shown:
        batch = next(file.iter_batches(batch_size=ROWS, columns=shown, use_threads=False), None)
        if batch is not None:
            columns = [batch.column(number).slice(0, ROWS).to_pylist() for number in range(batch.num_columns)]
            rows = [[_cell(value) for value in row] for row in zip(*columns, strict=True)]
            shown = list(batch.schema.names)
    return ParquetLook(
        rows=footer.num_rows,
        row_groups=footer.num_row_groups,
        columns=[Column(field.name, str(field.type), field.nullable) for field in schema],
        table=Table(shown, rows, max(0, len(names) - len(shown))),
        created_by=str(footer.created_by or ""),
        read=source.read_bytes,
        size=source.size(),
    )


def _distinct(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _cell(value: object) -> str:
    return "–" if value is None else cut(value)


class _TooMuch(Exception):
    pass


class _Ranged(io.RawIOBase):
    """An object as a file, read by ranges, up to a bound."""

    def __init__(self, part: Callable[[int, int], bytes], size: int) -> None:
        self._part = part
        self._size = size
        self._at = 0
        self.read_bytes = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def size(self) -> int:
        """How large it is; Arrow asks."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = min(max(0, start + offset), self._size)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """So many bytes from here on."""
        left = self._size - self._at
        wanted = left if size is None or size < 0 else min(size, left)
        if self.read_bytes + wanted > MOST_BYTES:
            raise _TooMuch
        data = self._part(self._at, wanted) if wanted else b""
        self._at += len(data)
        self.read_bytes += len(data)
        return data
