"""What task bodies log becomes lines of their attempt, like what they print.

    a record                                                       goes
    of Perago, or of a library that Perago calls servers with      to the worker's log
    of anyone else, outside an attempt                             to the worker's log
    of anyone else, during an attempt, from INFO on                to the attempt's lines
    the same, where the body's own handler has printed it          nowhere else: it is one of the lines already

The rule: a record is seen once, whatever the body does to `logging`.

Structured logs: one line per event, for people or as JSON, with the attempt on every line and no secret on any.

The rules: lines go to stderr and, where a log root is set, as JSON to a file there that is rotated.  A line that is
written while an attempt runs carries its workflow, task, retry and execution, whichever library wrote it.  Secrets
are masked last, in the finished text, so that they cannot come in by an exception or an argument either.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from perago.protocol.attempt import Attempt
from perago.runtime.observe.sanitize import Masker, printable, secrets_of
from perago.runtime.process.stdio_state import prints
from perago.settings import Settings

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


TOLD = "told"
"""On a record of what is told as an event too."""
FILE_BYTES = 20 * 1024 * 1024
FILE_COUNT = 5

Fields = Mapping[str, str | int]
_here: ContextVar[Fields | None] = ContextVar("perago_attempt_fields", default=None)
_everywhere: Fields = {}


def attempt_fields(attempt: Attempt, execution_id: str) -> dict[str, str | int]:
    """What every line of an attempt carries."""
    return {
        "workflow": attempt.workflow_instance_id,
        "task": attempt.task_id,
        "reference": attempt.reference_task_name,
        "retry": attempt.retry_count,
        "execution": execution_id,
    }


@contextmanager
def attempt_logs(attempt: Attempt, execution_id: str, *, everywhere: bool = False) -> Iterator[None]:
    """Lines of this thread carry the attempt; `everywhere` for a process that runs one attempt at a time.

    A thread that the body starts knows nothing of its starter's context, so an executor says `everywhere`.
    """
    global _everywhere
    fields = attempt_fields(attempt, execution_id)
    token = _here.set(fields)
    before = _everywhere
    if everywhere:
        _everywhere = fields
    try:
        yield
    finally:
        _here.reset(token)
        if everywhere:
            _everywhere = before


class TextFormatter(logging.Formatter):
    """A line for people: time, level, who, what, and the attempt at the end."""

    def __init__(self, mask: Masker) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        """The record as text; an exception follows on lines of its own."""
        when = datetime.fromtimestamp(record.created).strftime("%H:%M:%S.%f")[:-3]
        who = record.name.removeprefix("perago.")
        text = f"{when} {record.levelname:<7} {who:<12} {record.getMessage()}"
        fields = fields_of_record(record)
        if fields:
            text += "  [" + " ".join(f"{name}={value}" for name, value in fields.items()) + "]"
        if trace := trace_of(record):
            text += "\n" + trace
        return printable(self._mask(text))


class JsonFormatter(logging.Formatter):
    """A line for machines: one JSON object."""

    def __init__(self, mask: Masker) -> None:
        super().__init__()
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(record.getMessage()),
            **{
                name: self._mask(v) if isinstance(v, str) else v
                for name, v in fields_of_record(record).items()
            },
            "pid": record.process,
        }
        if trace := trace_of(record):
            line["error"] = self._mask(trace)
        return json.dumps(line, ensure_ascii=False)


@contextmanager
def logging_to(
    settings: Settings,
    *,
    name: str,
    stream: TextIO | None = None,
    level: int = logging.INFO,
    bodies: Callable[[str], None] | None = None,
    kept: logging.Handler | None = None,
) -> Iterator[Masker]:
    """Log as the settings say for as long as the block runs; `name` is this process's file under the log root.

    Two processes need two names: a file that two rotate loses lines.  `bodies` takes what task bodies log, in place of
    the log; whatever the level of that is.  `kept` gets lines from its own level on, whatever the others show; it is for
    who looks on, so what onlookers are told as an event is not shown again.
    """
    mask = Masker(secrets_of(settings))
    shown = logging.StreamHandler(stream or sys.stderr)
    shown.setFormatter(JsonFormatter(mask) if settings.log_format == "json" else TextFormatter(mask))
    handlers: list[logging.Handler] = [shown]
    if settings.log_root is not None:
        handlers.append(_file(settings.log_root, name, mask))
    for handler in handlers:
        handler.setLevel(level)
    if kept is not None:
        shown.addFilter(lambda record: not getattr(record, TOLD, False))
        handlers.append(kept)
    with logging_by(handlers, bodies):
        yield mask


@contextmanager
def logging_by(
    handlers: Sequence[logging.Handler], bodies: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Log by these handlers for as long as the block runs; `bodies` takes what task bodies log instead of them."""
    lowest = min(handler.level for handler in handlers)
    if bodies is not None:
        taking = BodyLogs(bodies, running=lambda: bool(_everywhere))
        for handler in handlers:
            handler.addFilter(lambda record: not taking.takes(record))
        handlers = [*handlers, taking]
    with _installed(handlers, lowest):
        yield


def _file(root: Path, name: str, mask: Masker) -> logging.Handler:
    root.mkdir(parents=True, exist_ok=True)
    copy = logging.handlers.RotatingFileHandler(
        root / f"{name}.jsonl", maxBytes=FILE_BYTES, backupCount=FILE_COUNT, encoding="utf-8", delay=True
    )
    copy.setFormatter(JsonFormatter(mask))
    return copy


@contextmanager
def _installed(handlers: Sequence[logging.Handler], level: int) -> Iterator[None]:
    """The handlers at the root, so that task bodies' and libraries' own loggers reach them too."""
    root = logging.getLogger()
    before = root.level, {name: logging.getLogger(name).level for name in chatty()}
    root.setLevel(min(handler.level for handler in handlers))
    for name in before[1]:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            root.removeHandler(handler)
            handler.close()
        root.setLevel(before[0])
        for name, old in before[1].items():
            logging.getLogger(name).setLevel(old)


def fields_of_record(record: logging.LogRecord) -> Fields:
    """The attempt the line belongs to: what the record itself says, else its thread's, else the process's."""
    said = getattr(record, "attempt", None)
    if isinstance(said, Mapping):
        return said
    return _here.get() or _everywhere


def trace_of(record: logging.LogRecord) -> str:
    """The traceback that follows a line: one that came as text from another process, or the record's own."""
    if said := getattr(record, "trace", ""):
        return str(said)
    return (
        logging.Formatter().formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
    )
