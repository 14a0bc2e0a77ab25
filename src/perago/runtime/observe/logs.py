"""Structured logs, as text or JSON, and the log records of task bodies.

Lines go to stderr and, if a log root is set, as JSON to a rotated file there.  A line written while an attempt is
running carries the attempt's workflow, task, retry and execution, whichever library wrote it.  Secrets are masked last,
in the finished text, so that exceptions and arguments cannot leak them.

    a record from                                                  goes
    Perago, or a library that Perago uses to call servers          to the worker's log
    any other logger, outside an attempt                           to the worker's log
    any other logger, during an attempt, at INFO or above          to the attempt's output, like printed lines
    the same, if one of the body's handlers already printed it     nowhere else: it is already in the output

A record is shown only once, whatever the body does to `logging`.
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
from perago.runtime.observe.trace_ids import trace_fields
from perago.runtime.process.stdio_state import prints
from perago.settings import Settings

_CHATTY = ("httpx", "httpcore", "urllib3", "conductor", "py4j", "opentelemetry")
_OURS = ("perago", *_CHATTY)
_PID = re.compile(r"\[\d+\] ")
"""Matches the prefix that Conductor's client puts before its logger names."""

_FILE = re.compile(r"^perago_file_[0-9a-f]{12}_")
"""Matches the module name prefix for files passed on the command line (`declare/discovery.py`)."""

HAS_EVENT = "has_event"
"""Name of the attribute that marks log records that are also published as events."""
FILE_BYTES = 20 * 1024 * 1024
FILE_COUNT = 5

Fields = Mapping[str, str | int]
_here: ContextVar[Fields | None] = ContextVar("perago_attempt_fields", default=None)
_everywhere: Fields = {}


def chatty() -> tuple[str, ...]:
    """Return the names of loggers that are too verbose at INFO: they log every request's URL, or their own import."""
    return (*_CHATTY, f"[{os.getpid()}] conductor")


class BodyLogs(logging.Handler):
    """Writes log records from bodies as whole lines, as long as `running()` says that an attempt is running."""

    def __init__(self, write: Callable[[str], None], running: Callable[[], bool]) -> None:
        super().__init__(logging.INFO)
        self._write = write
        self._running = running
        self.setFormatter(_UserFormatter("%(levelname)s %(name)s: %(message)s"))

    def takes(self, record: logging.LogRecord) -> bool:
        """Return whether the record was logged by a body and so belongs to the attempt's output."""
        return _PID.sub("", record.name).partition(".")[0] not in _OURS and self._running()

    def is_shown(self, record: logging.LogRecord) -> bool:
        """Return whether the record is already in the attempt's output."""
        return is_printed(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a body's record, unless it is already in the attempt's output."""
        if not self.takes(record) or self.is_shown(record):
            return
        try:
            self._write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


class _UserFormatter(logging.Formatter):
    """Formats user log records. A logger named after the module of a task file appears under the file's own name."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Format the line without the prefix that distinguishes files of the same name."""
        shown = copy(record)
        shown.name = _FILE.sub("", record.name)
        return super().formatMessage(shown)


def is_printed(record: logging.LogRecord) -> bool:
    """Return whether one of the record's handlers prints it to stdout or stderr."""
    return any(prints(one) for one in handlers_on_the_way(record))


def handlers_on_the_way(record: logging.LogRecord) -> Iterator[logging.Handler]:
    """Yield the handlers that receive the record: those of its logger and of that logger's ancestors."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        yield from (one for one in logger.handlers if record.levelno >= one.level)
        logger = logger.parent if logger.propagate else None


def attempt_fields(attempt: Attempt, execution_id: str) -> dict[str, str | int]:
    """Return the fields that every log line of an attempt carries.  The workflow's name is left out if unknown."""
    return {
        **({"workflow_name": attempt.workflow_name} if attempt.workflow_name else {}),
        "task_name": attempt.task_name,
        "workflow": attempt.workflow_instance_id,
        "task": attempt.task_id,
        "reference": attempt.reference_task_name,
        "retry": attempt.retry_count,
        "execution": execution_id,
    }


@contextmanager
def attempt_logs(attempt: Attempt, execution_id: str, *, everywhere: bool = False) -> Iterator[None]:
    """Add the attempt's fields to log lines from this thread or, with `everywhere`, from the whole process.

    Threads that a body starts do not inherit its context, so an executor, which runs one attempt at a time, sets
    `everywhere`.
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
    """Formats a human-readable line: local date and time, level, logger, message, and the attempt at the end."""

    def __init__(self, mask: Masker, *, traces: bool = False) -> None:
        super().__init__()
        self._mask = mask
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as text. A traceback follows on separate lines."""
        when = datetime.fromtimestamp(record.created).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        who = record.name.removeprefix("perago.")
        text = f"{when} {record.levelname:<7} {who:<12} {record.getMessage()}"
        fields = fields_of_record(record)
        if self._traces:
            fields = {**fields, **trace_fields(fields)}
        if fields:
            text += "  [" + " ".join(f"{name}={value}" for name, value in fields.items()) + "]"
        if trace := trace_of(record):
            text += "\n" + trace
        return printable(self._mask(text))


class JsonFormatter(logging.Formatter):
    """Formats a machine-readable line: one JSON object."""

    def __init__(self, mask: Masker, *, traces: bool = False) -> None:
        super().__init__()
        self._mask = mask
        self._traces = traces

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._mask(record.getMessage()),
            **{
                name: self._mask(v) if isinstance(v, str) else v
                for name, v in fields_of_record(record).items()
            },
            **(trace_fields(fields_of_record(record)) if self._traces else {}),
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
    """Log according to the settings while the block runs.

    `name` is the name of this process's file under the log root.  It must differ between processes, because a file that
    two processes rotate loses lines.

    Log lines from task bodies go to `bodies` instead of the log, whatever the log's level.  `kept` is an additional
    handler, with its own level, for a caller that listens to events.  Records that are also published as events
    (`HAS_EVENT`) are then left out of the stream.
    """
    mask = Masker(secrets_of(settings))
    shown = logging.StreamHandler(stream or sys.stderr)
    formatter = JsonFormatter if settings.log_format == "json" else TextFormatter
    shown.setFormatter(formatter(mask, traces=settings.traces))
    handlers: list[logging.Handler] = [shown]
    if settings.log_root is not None:
        handlers.append(_file(settings, settings.log_root, name, mask))
    for handler in handlers:
        handler.setLevel(level)
    if kept is not None:
        shown.addFilter(lambda record: not getattr(record, HAS_EVENT, False))
        handlers.append(kept)
    with logging_by(handlers, bodies):
        yield mask


@contextmanager
def logging_by(
    handlers: Sequence[logging.Handler], bodies: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Log to these handlers while the block runs.  Log lines from task bodies go to `bodies` instead."""
    lowest = min(handler.level for handler in handlers)
    if bodies is not None:
        body_logs = BodyLogs(bodies, running=lambda: bool(_everywhere))
        for handler in handlers:
            handler.addFilter(lambda record: not body_logs.takes(record))
        handlers = [*handlers, body_logs]
    with _install(handlers, lowest):
        yield


def _file(settings: Settings, root: Path, name: str, mask: Masker) -> logging.Handler:
    root.mkdir(parents=True, exist_ok=True)
    copy = logging.handlers.RotatingFileHandler(
        root / f"{name}.jsonl", maxBytes=FILE_BYTES, backupCount=FILE_COUNT, encoding="utf-8", delay=True
    )
    copy.setFormatter(JsonFormatter(mask, traces=settings.traces))
    return copy


@contextmanager
def _install(handlers: Sequence[logging.Handler], level: int) -> Iterator[None]:
    """Install the handlers on the root logger, so that records from bodies and libraries reach them too."""
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
    """Return the attempt's fields for a record: from the record, or else from this thread, or else from the process."""
    own = getattr(record, "attempt", None)
    if isinstance(own, Mapping):
        return own
    return _here.get() or _everywhere


def trace_of(record: logging.LogRecord) -> str:
    """Return a record's traceback: the text sent by another process, or else the record's own, or else ""."""
    if text := getattr(record, "trace", ""):
        return str(text)
    return (
        logging.Formatter().formatException(record.exc_info) if record.exc_info and record.exc_info[0] else ""
    )
