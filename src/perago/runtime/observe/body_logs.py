"""What task bodies log becomes lines of their attempt, like what they print.

    a record                                                       goes
    of Perago, or of a library that Perago calls servers with      to the worker's log
    of anyone else, outside an attempt                             to the worker's log
    of anyone else, during an attempt, from INFO on                to the attempt's lines
    the same, where the body's own handler has printed it          nowhere else: it is one of the lines already

The rule: a record is seen once, whatever the body does to `logging`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from copy import copy

from perago.runtime.process.logging_state import prints

_CHATTY = ("httpx", "httpcore", "urllib3", "conductor", "py4j", "opentelemetry")
_OURS = ("perago", *_CHATTY)
_PID = re.compile(r"\[\d+\] ")
"""Conductor's client puts it before the names of its loggers."""

_FILE = re.compile(r"^perago_file_[0-9a-f]{12}_")
"""What a module's name begins with where its file was named on the command line (`declare/discovery.py`)."""


def chatty() -> tuple[str, ...]:
    """Loggers that log every request, with its URL, as INFO; or that they were imported."""
    return (*_CHATTY, f"[{os.getpid()}] conductor")


class BodyLogs(logging.Handler):
    """Writes what bodies log while `running` says that there is an attempt; `write` takes whole lines."""

    def __init__(self, write: Callable[[str], None], running: Callable[[], bool]) -> None:
        super().__init__(logging.INFO)
        self._write = write
        self._running = running
        self.setFormatter(_AuthorsNames("%(levelname)s %(name)s: %(message)s"))

    def takes(self, record: logging.LogRecord) -> bool:
        """Whether a record is a body's."""
        return _PID.sub("", record.name).partition(".")[0] not in _OURS and self._running()

    def is_shown(self, record: logging.LogRecord) -> bool:
        """Whether the record is one of the lines already."""
        return is_printed(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, unless it is there already."""
        if not self.takes(record) or self.is_shown(record):
            return
        try:
            self._write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


class _AuthorsNames(logging.Formatter):
    """A logger that is called after its module has the name of the module's file."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without what makes the names of two files of the same name differ."""
        shown = copy(record)
        shown.name = _FILE.sub("", record.name)
        return super().formatMessage(shown)


def is_printed(record: logging.LogRecord) -> bool:
    """Whether a handler on the record's way prints it to stdout or stderr."""
    return any(prints(one) for one in handlers_on_the_way(record))


def handlers_on_the_way(record: logging.LogRecord) -> Iterator[logging.Handler]:
    """The handlers that take the record, by its logger and by those above."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        yield from (one for one in logger.handlers if record.levelno >= one.level)
        logger = logger.parent if logger.propagate else None
