"""What a task body prints, read line by line in the supervisor.

An executor's stdout and stderr are one pipe that the supervisor reads.  The reader sits in another process on
purpose: a body that prints from C while it holds the GIL would wait for ever for a reader thread of its own process.
The executor marks in the stream where an attempt begins and ends, so every line goes to the right attempt, and
what an executor printed before it was killed is there too.

The rule: reading never stops and never waits, so a body is not held up by a slow server.  Lines over the bounds are
dropped and counted, and a last line says how many.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from perago.runtime.observe.sanitize import Masker
from perago.runtime.process.stdio_state import flush_output, open_stream

_MARK = re.compile(rb"\n?\x00perago (begin|end) ([^\x00\n]*)\x00\n")
_LONGEST_MARK = 200


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of one attempt's output is kept."""

    lines: int = 2000
    line_chars: int = 2000
    chars: int = 256 * 1024


Sink = Callable[[str, str], None]
"""Takes the execution id (empty outside an attempt) and one line; must not block."""
Ended = Callable[[str], None]
"""Takes the id of an execution whose last line has been passed on; must not block."""


class LineSplitter:
    """Bytes of one executor in, lines of its executions out, within bounds."""

    def __init__(
        self, sink: Sink, mask: Masker, bounds: Bounds | None = None, *, ended: Ended | None = None
    ) -> None:
        self._sink = sink
        self._mask = mask
        self._bounds = bounds or Bounds()
        self._ended = ended
        self._rest = b""
        self._execution = ""
        self._reset("")

    def feed(self, data: bytes) -> None:
        """Take what was read."""
        self._rest += data
        while mark := _MARK.search(self._rest):
            self._lines(self._rest[: mark.start()])
            self._rest = self._rest[mark.end() :]
            self._close()
            self._reset(mark[2].decode() if mark[1] == b"begin" else "")
        # A mark may be half there: its part stays until the rest has come.
        whole = self._rest.rfind(b"\n", 0, self._safe_length())
        if whole >= 0:
            self._lines(self._rest[: whole + 1])
            self._rest = self._rest[whole + 1 :]
        elif len(self._rest) > 4 * self._bounds.line_chars + _LONGEST_MARK:
            # A line without an end must not fill the memory.  Half a secret would not be known for one: it is masked
            # before the cut, and what may be the beginning of one waits for the rest.
            masked = self._mask(self._rest.decode("utf-8", "surrogateescape"))
            self._rest = masked.encode("utf-8", "surrogateescape")
            cut = max(0, min(self._safe_length(), len(self._rest) - self._mask.longest))
            self._lines(self._rest[:cut])
            self._rest = self._rest[cut:]

    def finish(self) -> None:
        """The stream has ended, by itself or with its process."""
        self._lines(self._rest)
        self._rest = b""
        self._close()
        self._reset("")

    def _safe_length(self) -> int:
        """How much of the rest cannot be the beginning of a mark."""
        length = len(self._rest)
        start = self._rest.find(b"\x00", max(0, length - _LONGEST_MARK))
        if start >= 0:
            return max(start - 1, 0)
        # A mark brings its own newline: an empty line at the end may be that.
        return length - 1 if self._rest[-2:] in (b"\n", b"\n\n") else length

    def _lines(self, data: bytes) -> None:
        """Pass on the lines; a last one without an end counts as one."""
        if not data:
            return
        for raw in data.removesuffix(b"\n").split(b"\n"):
            self._line(raw.decode("utf-8", "replace").rstrip("\r"))

    def _line(self, text: str) -> None:
        text = self._mask(text)
        if len(text) > self._bounds.line_chars:
            text = text[: self._bounds.line_chars] + " …"
        bounded = bool(self._execution)
        if bounded and (self._kept >= self._bounds.lines or self._chars + len(text) > self._bounds.chars):
            self._dropped += 1
            return
        self._kept += 1
        self._chars += len(text)
        self._sink(self._execution, text)

    def _close(self) -> None:
        if self._dropped:
            self._sink(self._execution, f"… {self._dropped} more lines were not kept")
        if self._execution and self._ended is not None:
            self._ended(self._execution)

    def _reset(self, execution: str) -> None:
        self._execution = execution
        self._kept = self._chars = self._dropped = 0


class OutputReader:
    """The supervisor's end: a pipe for one executor, read by a thread."""

    def __init__(
        self,
        sink: Sink,
        mask: Masker,
        *,
        name: str = "",
        bounds: Bounds | None = None,
        ended: Ended | None = None,
    ) -> None:
        self._read_fd, self.write_fd = os.pipe()
        self._splitter = LineSplitter(sink, mask, bounds, ended=ended)
        self._thread = threading.Thread(target=self._run, name=f"perago-output-{name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            os.close(self._read_fd)
            self.handed_over()
            raise

    def handed_over(self) -> None:
        """The executor has its end: close ours, so that the stream ends when the executor does."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def join(self, timeout: float | None = None) -> None:
        """Wait until all that the executor, and whatever it left running, has printed is read."""
        self.handed_over()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while data := os.read(self._read_fd, 65536):
                self._splitter.feed(data)
        finally:
            self._splitter.finish()
            os.close(self._read_fd)


class Printer:
    """The executor's end: what is printed goes into the pipe from now on, with marks around each execution.

    Marks take a descriptor of our own: whatever a body does to stdout and stderr, its end is seen.  `log` is the
    stderr that there was before.
    """

    def __init__(self, write_fd: int) -> None:
        self.log: TextIO = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace", buffering=1)
        flush_output()
        os.dup2(write_fd, 1)
        os.dup2(write_fd, 2)
        os.set_inheritable(write_fd, False)
        self._fd = write_fd
        # The streams of the start remember what the descriptors were, a file that can be sought, say.
        sys.stdout, sys.stderr = open_stream(1), open_stream(2)

    def begin(self, execution_id: str) -> None:
        """From here on what is printed belongs to this execution."""
        self._mark("begin", execution_id)

    def end(self, execution_id: str) -> None:
        """What this execution printed is complete."""
        self._mark("end", execution_id)

    def write(self, text: str) -> None:
        """Add whole lines to what was printed so far, whatever has become of stdout and stderr."""
        flush_output()
        data = text.encode("utf-8", "backslashreplace")
        # A reader that is gone takes the whole executor along: that is not found out here.
        with contextlib.suppress(OSError):
            # Not blocking is a property of the pipe, so a body that set it on stdout has set it here too.
            os.set_blocking(self._fd, True)
            while data:
                data = data[os.write(self._fd, data) :]

    def _mark(self, what: str, execution_id: str) -> None:
        # Shorter than PIPE_BUF, so it is written in one piece whoever else writes.
        self.write(f"\n\x00perago {what} {execution_id}\x00\n")
