"""A program that decodes Parquet files for the UI, in a separate process with limited memory and no credentials.

It imports nothing from Perago, so that it starts quickly.  It communicates in JSON and plain bytes, so even if a
hostile file takes over this process, the UI treats its messages only as text.  `parquet_preview.py` starts the program,
and kills it after a time limit.

    page                            decoder
                            ◀──     {"ready": true}, or {"problem": …}
    {"size": …, limits}     ──▶
                            ◀──     {"read": [start, length]}
    bytes                   ──▶
                            ◀──     {"look": …}, {"problem": …} or {"too_much": true}
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

_BUFFER = 64 * 1024


def main(descriptor: int, memory: int) -> None:
    """Handle preview requests until the UI closes the connection."""
    page = Connection(descriptor)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        _send(page, {"problem": "Looking into Parquet needs pyarrow, which is part of Perago's extra `ui`."})
        return
    pa.set_cpu_count(1)
    _limit_memory(memory)
    _send(page, {"ready": True})
    with contextlib.suppress(EOFError, OSError):
        while True:
            _send(page, _answer(page, json.loads(page.recv_bytes()), pa, pq))
            pa.default_memory_pool().release_unused()


def _answer(page: Connection, request: dict[str, int], pa: Any, pq: Any) -> dict[str, Any]:
    source = _RangeFile(page, request["size"])
    try:
        with pq.ParquetFile(
            pa.PythonFile(source, mode="r"), buffer_size=_BUFFER, pre_buffer=False, memory_map=False
        ) as file:
            return {"look": _preview(file, request)}
    except (MemoryError, pa.ArrowMemoryError):
        return {"too_much": True}
    except (pa.ArrowException, OSError, ValueError, UnicodeError, RecursionError) as error:
        return {"problem": f"It cannot be read as Parquet: {_cut(error, request['cell'])}"}


def _preview(file: Any, limits: dict[str, int]) -> dict[str, Any]:
    schema, footer = file.schema_arrow, file.metadata
    names = [field.name for field in schema]
    shown = list(dict.fromkeys(names))[: limits["columns"]]
    cell, rows = limits["cell"], []
    if footer.num_rows and shown:
        batch = next(file.iter_batches(batch_size=limits["rows"], columns=shown, use_threads=False), None)
        if batch is not None:
            batch = batch.slice(0, limits["rows"])
            columns = [_cells(batch.column(number), cell) for number in range(batch.num_columns)]
            rows = list(zip(*columns, strict=True))
            shown = list(batch.schema.names)
    return {
        "rows": footer.num_rows,
        "row_groups": footer.num_row_groups,
        "columns": [
            (_cut(field.name, cell), _cut(field.type, cell), field.nullable)
            for field in (schema.field(number) for number in range(min(len(names), limits["schema"])))
        ],
        "all_columns": len(names),
        "shown": [_cut(name, cell) for name in shown],
        "table": rows,
        "created_by": _cut(footer.created_by or "", cell),
    }


def _cells(column: Any, most: int) -> list[str]:
    # Convert one value at a time: its text may be large, and only the start is kept.
    return ["–" if (value := one.as_py()) is None else _cut(value, most) for one in column]


def _cut(value: object, most: int) -> str:
    text = str(value)
    return text if len(text) <= most else text[:most] + " …"


def _send(page: Connection, message: dict[str, Any]) -> None:
    page.send_bytes(json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace"))


def _limit_memory(more: int) -> None:
    """Limit this process's memory to `more` bytes above its current use.

    On systems that cannot limit memory, only the UI's time limit applies.
    """
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as statm:
            now = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        return


class _RangeFile(io.RawIOBase):
    """A file-like view of the object. The page process supplies its bytes range by range."""

    def __init__(self, page: Connection, size: int) -> None:
        self._page = page
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: the position can be changed."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def size(self) -> int:
        """Return the size of the file. Arrow calls this method."""
        return self._size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, clamped to the bounds of the file."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = min(max(0, start + offset), self._size)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, or the rest of the file if `size` is negative."""
        left = self._size - self._at
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        _send(self._page, {"read": [self._at, wanted]})
        data = self._page.recv_bytes()
        self._at += len(data)
        return data


def _arguments(given: Sequence[str]) -> tuple[int, int]:
    descriptor, memory = map(int, given)
    return descriptor, memory


if __name__ == "__main__":
    main(*_arguments(sys.argv[1:]))
