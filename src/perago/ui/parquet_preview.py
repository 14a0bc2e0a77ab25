"""A preview of a Parquet file: its schema and first rows, from its footer and its first pages alone.

The rule: whatever a file says about itself, its preview is bounded.  Bytes are read by ranges, up to `MOST_BYTES`; pyarrow
decodes them in a process of its own (`decoder.py`), which may have `MOST_MEMORY` more than it starts with and `MOST_SECONDS`
of time, and is killed after that; what it says is JSON of a bounded size.  That process stays for the next preview.
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
_MOST_SAID = 16 * 1024 * 1024
_LIMITS = {"rows": ROWS, "columns": COLUMNS, "cell": CELL, "schema": SCHEMA_COLUMNS}
_TOO_MUCH = "Its first rows take too much memory or time to be shown here."
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "TMPDIR")
"""What the decoder gets of the environment, which also holds the keys to the servers."""
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
"""Arrow's own allocators reserve more than they use, which a limit on memory does not forgive."""

Part = Callable[[int, int], bytes]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a schema."""

    name: str
    type: str
    nullable: bool


@dataclass(frozen=True, slots=True)
class ParquetPreview:
    """What the footer says, and the first rows."""

    rows: int
    row_groups: int
    columns: Sequence[Column]
    all_columns: int
    """How many there are; `columns` has the first of them."""
    table: Table
    created_by: str
    read: int
    size: int
    """How many bytes the look took, and how many there are."""


def preview_parquet(part: Part, size: int, seconds: float = MOST_SECONDS) -> ParquetPreview | str:
    """The preview, or a sentence that says why there is none; `part` gives bytes from a place on."""
    with _lock:
        try:
            return _decoder().look(part, size, seconds)
        except _Gone as gone:
            if not gone.was_used:
                return _TOO_MUCH
        # What it had decoded before may be why it had no memory left.
        try:
            return _decoder().look(part, size, seconds)
        except _Gone:
            return _TOO_MUCH


class _Gone(Exception):
    """The decoder is gone, because the page ended it or because it crashed; `was_used` if it has decoded another file."""

    def __init__(self, *, was_used: bool) -> None:
        super().__init__()
        self.was_used = was_used


class _Decoder:
    """One decoder process; a failure ends it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._looks = 0
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
                # pyarrow complains there before it aborts.
                stderr=subprocess.DEVNULL,
                env={**_ENVIRONMENT, **{name: os.environ[name] for name in _PASSED_ON if name in os.environ}},
            )
        self._pipe = Connection(ours.detach())
        self.problem = str(self._hear(_START_SECONDS)[0].get("problem", ""))

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def look(self, part: Part, size: int, seconds: float) -> ParquetPreview | str:
        """Have a file decoded; raises `_Gone` if that takes too much."""
        if self.problem:
            return self.problem
        self._send(json.dumps({"size": size, **_LIMITS}).encode())
        left, read = seconds, 0
        while True:
            said, took = self._hear(left)
            # Time that the lake takes is not the file's doing.
            left -= took
            match said:
                case {"read": [int(start), int(length)]}:
                    read += length
                    if min(start, length) < 0 or read > MOST_BYTES:
                        raise self._ended()
                    self._send(self._part(part, start, length))
                case {"look": found}:
                    self._looks += 1
                    return self._parsed(found, read, size)
                case {"problem": str(problem)}:
                    return problem
                case _:
                    raise self._ended()

    def end(self) -> None:
        """End the process, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._pipe.close()

    def _part(self, part: Part, start: int, length: int) -> bytes:
        try:
            return part(start, length)
        except BaseException:
            # It waits for bytes that do not come.
            self.end()
            raise

    def _send(self, data: bytes) -> None:
        try:
            self._pipe.send_bytes(data)
        except OSError:
            raise self._ended() from None

    def _hear(self, seconds: float) -> tuple[Mapping[str, Any], float]:
        """What it says next, and how long that took."""
        began = time.monotonic()
        try:
            if not self._pipe.poll(max(0.0, seconds)):
                raise self._ended()
            said = json.loads(self._pipe.recv_bytes(_MOST_SAID))
        except (OSError, EOFError, ValueError):
            raise self._ended() from None
        if not isinstance(said, dict):
            raise self._ended()
        return said, time.monotonic() - began

    def _parsed(self, found: Any, read: int, size: int) -> ParquetPreview:
        try:
            return _parsed(found, read, size)
        except (KeyError, TypeError, ValueError):
            raise self._ended() from None

    def _ended(self) -> _Gone:
        self.end()
        return _Gone(was_used=self._looks > 0)


_lock = threading.Lock()
_running: _Decoder | None = None


def _decoder() -> _Decoder:
    """The decoder of this process, a new one if the last one is gone."""
    global _running
    if _running is None or _running.owner != os.getpid() or not _running.alive:
        _running = None
        _running = _Decoder()
    return _running


def _end_with_the_page() -> None:
    if _running is not None and _running.owner == os.getpid() and _running.alive:
        with contextlib.suppress(OSError):
            _running.end()


def _forked() -> None:
    """The lock may be held by a thread that is not here."""
    global _lock
    _lock = threading.Lock()


atexit.register(_end_with_the_page)
os.register_at_fork(after_in_child=_forked)


def _parsed(found: Mapping[str, Any], read: int, size: int) -> ParquetPreview:
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
