"""Previews a Parquet file: its schema and first rows, read only from its footer and first pages.

The preview has limits that hold whatever a file claims.  Bytes are read as ranges, up to `MOST_BYTES` in total.
pyarrow decodes them in a separate process (`preview_decoder.py`).  That process may use `MOST_MEMORY` bytes more
than at its start, and is killed after `MOST_SECONDS`.  It returns JSON of limited size.  The process is reused for the
next preview.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from perago.ui import preview_decoder
from perago.ui.text_preview import CELL, COLUMNS, Table

ROWS = 50
SCHEMA_COLUMNS = 500
MOST_BYTES = 32 * 1024 * 1024
MOST_MEMORY = 512 * 1024 * 1024
MOST_SECONDS = 10.0
_START_SECONDS = 60.0
_MOST_MESSAGE_BYTES = 16 * 1024 * 1024
_LIMITS = {"rows": ROWS, "columns": COLUMNS, "cell": CELL, "schema": SCHEMA_COLUMNS}
_TOO_MUCH = "Its first rows take too much memory or time to be shown here."
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "TMPDIR")
"""The variables passed to the decoder. The rest of the environment may contain the servers' credentials."""
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Additional variables for the decoder. They select the system allocator, because Arrow's own allocators reserve more
memory than they use, and would exceed the limit."""

Part = Callable[[int, int], bytes]

_lock = threading.Lock()
_running: _Decoder | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column in a Parquet file's schema."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class ParquetPreview:
    """The preview of a Parquet file: the content of its footer, and its first rows."""

    rows: int
    row_groups: int
    columns: Sequence[Column]
    all_columns: int
    """The total number of columns. `columns` contains only the first `SCHEMA_COLUMNS`."""
    table: Table
    created_by: str
    read: int
    size: int
    """The size of the file in bytes. `read` is the number of bytes that the preview read from it."""


def preview_parquet(part: Part, size: int, seconds: float = MOST_SECONDS) -> ParquetPreview | str:
    """Return the preview of a Parquet file, or a sentence that says why there is none.

    `part(start, length)` reads bytes from the file.
    """
    with _lock:
        try:
            return _decoder().preview(part, size, seconds)
        except _DecoderGone as gone:
            if not gone.was_used:
                return _TOO_MUCH
        # Retry in a new process, because earlier files may have used up the memory.
        try:
            return _decoder().preview(part, size, seconds)
        except _DecoderGone:
            return _TOO_MUCH


class _DecoderGone(Exception):
    """The decoder process crashed, or the UI killed it. `was_used` says whether it had already decoded another file."""

    def __init__(self, *, was_used: bool) -> None:
        super().__init__()
        self.was_used = was_used


class _Decoder:
    """A decoder process. It is killed if a limit is exceeded, or if communication with it fails."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._previews = 0
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    str(Path(preview_decoder.__file__)),
                    str(theirs.fileno()),
                    str(MOST_MEMORY),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # pyarrow prints errors to stderr before it aborts.
                stderr=subprocess.DEVNULL,
                env={**_ENVIRONMENT, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}},
            )
        self._pipe = Connection(ours.detach())
        self.problem = str(self._receive(_START_SECONDS)[0].get("problem", ""))

    @property
    def alive(self) -> bool:
        """True if the process is running."""
        return self._process.poll() is None

    def preview(self, part: Part, size: int, seconds: float) -> ParquetPreview | str:
        """Return the preview of a file, or a sentence that says why there is none.

        Raises `_DecoderGone` if a limit is exceeded, or if communication with the process fails.
        """
        if self.problem:
            return self.problem
        self._send(json.dumps({"size": size, **_LIMITS}).encode())
        left, read = seconds, 0
        while True:
            message, took = self._receive(left)
            # Only the decoder's own time is limited, not the time spent reading from the lake.
            left -= took
            match message:
                case {"read": [int(start), int(length)]}:
                    read += length
                    if min(start, length) < 0 or read > MOST_BYTES:
                        raise self._give_up()
                    self._send(self._part(part, start, length))
                case {"look": found}:
                    self._previews += 1
                    try:
                        return _parse(found, read, size)
                    except (KeyError, TypeError, ValueError):
                        raise self._give_up() from None
                case {"problem": str(problem)}:
                    return problem
                case _:
                    raise self._give_up()

    def end(self) -> None:
        """Kill the process, and wait for its exit."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()

    def _part(self, part: Part, start: int, length: int) -> bytes:
        try:
            return part(start, length)
        except BaseException:
            # The decoder is waiting for bytes that will never arrive.
            self.end()
            raise

    def _send(self, data: bytes) -> None:
        try:
            self._pipe.send_bytes(data)
        except OSError:
            raise self._give_up() from None

    def _receive(self, seconds: float) -> tuple[Mapping[str, Any], float]:
        """Return the decoder's next message, and the number of seconds spent waiting for it."""
        started = time.monotonic()
        try:
            if not self._pipe.poll(max(0.0, seconds)):
                raise self._give_up()
            message = json.loads(self._pipe.recv_bytes(_MOST_MESSAGE_BYTES))
        except (OSError, EOFError, ValueError):
            raise self._give_up() from None
        if not isinstance(message, dict):
            raise self._give_up()
        return message, time.monotonic() - started

    def _give_up(self) -> _DecoderGone:
        """Kill the process, and return the error that the caller must raise."""
        self.end()
        return _DecoderGone(was_used=self._previews > 0)


def _decoder() -> _Decoder:
    """Return this process's decoder, starting a new one if the last one has ended."""
    global _running
    if _running is None or _running.owner != os.getpid() or not _running.alive:
        _running = None
        _running = _Decoder()
    return _running


def _end_at_exit() -> None:
    if _running is not None and _running.owner == os.getpid() and _running.alive:
        with contextlib.suppress(OSError):
            _running.end()


def _reset_lock() -> None:
    """Replace the lock after a fork: the thread holding it may not exist in the child."""
    global _lock
    _lock = threading.Lock()


atexit.register(_end_at_exit)
os.register_at_fork(after_in_child=_reset_lock)


def _parse(found: Mapping[str, Any], read: int, size: int) -> ParquetPreview:
    return ParquetPreview(
        rows=int(found["rows"]),
        row_groups=int(found["row_groups"]),
        columns=[Column(str(name), str(kind), bool(null)) for name, kind, null in found["columns"]],
        all_columns=int(found["all_columns"]),
        table=Table(
            [str(name) for name in found["shown"]],
            [[str(cell) for cell in row] for row in found["table"]],
            max(0, int(found["all_columns"]) - len(found["shown"])),
        ),
        created_by=str(found["created_by"]),
        read=read,
        size=size,
    )
