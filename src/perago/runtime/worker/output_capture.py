"""Captures the output of task bodies, line by line, in the supervisor.

An executor's stdout and stderr are one pipe that the supervisor reads.  The reader is in another process on purpose: a
body that prints from C while it holds the GIL would wait forever for a reader thread in its own process.  The executor marks
the beginning and the end of each attempt in the stream, so every line goes to the right attempt, and the output of a killed
executor is not lost.

Reading never stops and never waits, so a slow server does not hold up a body.  Lines beyond an attempt's limits
(`Bounds`) are dropped, and a final line reports how many.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from dataclasses import dataclass
from typing import Protocol, TextIO

from perago.runtime.observe.sanitize import Masker
from perago.runtime.process.stdio_state import flush_output, open_stream

_MARK = re.compile(rb"\n?\x00perago (begin|end) ([^\x00\n]*)\x00\n")
_LONGEST_MARK = 200


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the output that is kept per attempt."""

    lines: int = 2000
    line_chars: int = 2000
    chars: int = 256 * 1024


class OutputListener(Protocol):
    """Receives the output of executors.  Its methods are called on the reader's thread, and must not block."""

    @property
    def mask(self) -> Masker:
        """The masker that hides secrets.  It is applied to every line."""

    def on_line(self, execution_id: str, line: str) -> None:
        """Receive one line of output.  `execution_id` is empty outside an attempt."""

    def on_output_end(self, execution_id: str) -> None:
        """Handle the end of an execution's output: all its lines have been passed on."""


class LineSplitter:
    """Splits one executor's output into the lines of its executions.

    Limits the length of each line, and the number of lines and characters per execution.
    """

    def __init__(self, listener: OutputListener, bounds: Bounds | None = None) -> None:
        self._listener = listener
        self._mask = listener.mask
        self._bounds = bounds or Bounds()
        self._rest = b""
        self._execution = ""
        self._reset("")

    def feed(self, data: bytes) -> None:
        """Process bytes read from the pipe."""
        self._rest += data
        while mark := _MARK.search(self._rest):
            self._pass_lines(self._rest[: mark.start()])
            self._rest = self._rest[mark.end() :]
            self._close()
            self._reset(mark[2].decode() if mark[1] == b"begin" else "")
        # A mark may be incomplete: keep its beginning until the rest arrives.
        whole = self._rest.rfind(b"\n", 0, self._safe_length())
        if whole >= 0:
            self._pass_lines(self._rest[: whole + 1])
            self._rest = self._rest[whole + 1 :]
        elif len(self._rest) > 4 * self._bounds.line_chars + _LONGEST_MARK:
            # An endless line must not fill the memory.  Half a secret would not be recognized, so mask before cutting, and
            # keep what may be the beginning of a secret until the rest arrives.
            masked = self._mask(self._rest.decode("utf-8", "surrogateescape"))
            self._rest = masked.encode("utf-8", "surrogateescape")
            cut = max(0, min(self._safe_length(), len(self._rest) - self._mask.longest))
            self._pass_lines(self._rest[:cut])
            self._rest = self._rest[cut:]

    def finish(self) -> None:
        """Pass on the remaining bytes after the stream has ended."""
        self._pass_lines(self._rest)
        self._rest = b""
        self._close()
        self._reset("")

    def _safe_length(self) -> int:
        """Return how many leading bytes of the buffer cannot be part of a mark."""
        length = len(self._rest)
        start = self._rest.find(b"\x00", max(0, length - _LONGEST_MARK))
        if start >= 0:
            return max(start - 1, 0)
        # A mark starts with a newline, so an empty line at the end may be the beginning of one.
        return length - 1 if self._rest[-2:] in (b"\n", b"\n\n") else length

    def _pass_lines(self, data: bytes) -> None:
        """Pass on the lines, including a last one without a newline."""
        if not data:
            return
        for raw in data.removesuffix(b"\n").split(b"\n"):
            self._pass_line(raw.decode("utf-8", "replace").rstrip("\r"))

    def _pass_line(self, text: str) -> None:
        text = self._mask(text)
        if len(text) > self._bounds.line_chars:
            text = text[: self._bounds.line_chars] + " …"
        bounded = bool(self._execution)
        if bounded and (self._kept >= self._bounds.lines or self._chars + len(text) > self._bounds.chars):
            self._dropped += 1
            return
        self._kept += 1
        self._chars += len(text)
        self._listener.on_line(self._execution, text)

    def _close(self) -> None:
        if self._dropped:
            self._listener.on_line(self._execution, f"… {self._dropped} more lines were not kept")
        if self._execution:
            self._listener.on_output_end(self._execution)

    def _reset(self, execution: str) -> None:
        self._execution = execution
        self._kept = self._chars = self._dropped = 0


class OutputReader:
    """The supervisor's end of one executor's output pipe, read by a thread."""

    def __init__(self, listener: OutputListener, *, name: str = "", bounds: Bounds | None = None) -> None:
        self._read_fd, self.write_fd = os.pipe()
        self._splitter = LineSplitter(listener, bounds)
        self._thread = threading.Thread(target=self._run, name=f"perago-output-{name}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            os.close(self._read_fd)
            self.close_write_end()
            raise

    def close_write_end(self) -> None:
        """Close the supervisor's copy of the write end, so that the stream ends when the executor does."""
        if self.write_fd >= 0:
            os.close(self.write_fd)
            self.write_fd = -1

    def join(self, timeout: float | None = None) -> None:
        """Wait until all output of the executor, and of processes it left running, has been read."""
        self.close_write_end()
        self._thread.join(timeout)

    def _run(self) -> None:
        try:
            while data := os.read(self._read_fd, 65536):
                self._splitter.feed(data)
        finally:
            self._splitter.finish()
            os.close(self._read_fd)


class Printer:
    """The executor's end of the pipe: redirects stdout and stderr into it, with marks around each execution.

    Marks use a separate descriptor, so they get through whatever a body does to stdout and stderr.  `log` is the original
    stderr.
    """

    def __init__(self, write_fd: int) -> None:
        self.log: TextIO = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace", buffering=1)
        flush_output()
        os.dup2(write_fd, 1)
        os.dup2(write_fd, 2)
        os.set_inheritable(write_fd, False)
        self._fd = write_fd
        # The original streams remember properties of the old descriptors, such as being seekable.
        sys.stdout, sys.stderr = open_stream(1), open_stream(2)

    def begin(self, execution_id: str) -> None:
        """Write a mark: from here on, all output belongs to this execution."""
        self._mark("begin", execution_id)

    def end(self, execution_id: str) -> None:
        """Write a mark: the output of this execution is complete."""
        self._mark("end", execution_id)

    def write(self, text: str) -> None:
        """Append complete lines to the output, even if a body has closed stdout and stderr."""
        flush_output()
        data = text.encode("utf-8", "backslashreplace")
        # If the reader is gone, the whole executor is ending, and other code handles that.
        with contextlib.suppress(OSError):
            # Non-blocking mode belongs to the pipe: a body that sets it on stdout sets it here too.
            os.set_blocking(self._fd, True)
            while data:
                data = data[os.write(self._fd, data) :]

    def _mark(self, what: str, execution_id: str) -> None:
        # Shorter than PIPE_BUF, so it is written atomically.
        self.write(f"\n\x00perago {what} {execution_id}\x00\n")
