"""What an author's code prints and logs while it runs in a trial, as lines.

The rule: capturing takes nothing away.  What is printed still reaches the stream that was there, and what is logged still
reaches the handlers, so a test runner shows both as it always does.  What a child process or a C library writes to the
descriptors is not seen here: a JVM that starts meanwhile would keep a pipe in their place for its whole life.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from perago.runtime.observe.body_logs import BodyLogs, handlers_on_the_way


class _Tee:
    """A stream that keeps the lines written to it, and is otherwise the stream that it stands for."""

    def __init__(self, stream: Any, lines: list[str]) -> None:
        self._stream = stream
        self._lines = lines
        self._rest = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write on, and keep the lines that are whole."""
        written = self._stream.write(text)
        *whole, self._rest = (self._rest + text).split("\n")
        self._lines.extend(whole)
        return int(written)

    def writelines(self, texts: Any) -> None:
        """Write several texts."""
        for text in texts:
            self.write(text)

    def finish(self) -> None:
        """Keep a last line that was not ended."""
        if self._rest:
            self._lines.append(self._rest)
            self._rest = ""


class _Logged(BodyLogs):
    """Keeps what is logged as production would word it, unless a handler has just printed it to one of our streams."""

    def __init__(self, lines: list[str], tees: tuple[_Tee, ...]) -> None:
        super().__init__(lambda text: lines.extend(text.removesuffix("\n").split("\n")), running=lambda: True)
        self._tees = tees

    def is_shown(self, record: logging.LogRecord) -> bool:
        """Whether one of our streams has it already."""
        streams = [getattr(handler, "stream", None) for handler in handlers_on_the_way(record)]
        return any(stream is tee for stream in streams for tee in self._tees)


@contextmanager
def captured(lines: list[str]) -> Iterator[None]:
    """Add to `lines` what is printed and logged for as long as the block runs."""
    before = sys.stdout, sys.stderr
    tees = _Tee(before[0], lines), _Tee(before[1], lines)
    root, handler = logging.getLogger(), _Logged(lines, tees)
    level = root.level
    sys.stdout, sys.stderr = tees
    root.addHandler(handler)
    # As in a worker: what bodies log from INFO on is theirs to see.
    root.setLevel(min(level or logging.INFO, logging.INFO))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        root.removeHandler(handler)
        root.setLevel(level)
        for tee in tees:
            tee.finish()
