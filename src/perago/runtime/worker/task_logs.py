"""Sends the output of bodies to the orchestrator's task logs, on one thread.  Also forwards executors' log records.

Only `finish` waits for the sending thread, and no longer than its `timeout`.  Lines are sent in batches, every second
or as soon as an attempt is done.  Lines that cannot be sent are dropped, and the worker's log reports the loss.  Lines
have already been limited and masked when they arrive (`output_capture.py`).  Each line, and the record, is posted to
the inbox immediately.

The last line of an execution is its record (`protocol/attempt_record.py`).  The record is sent in a separate call, because
the orchestrator truncates a call that is too long, and half a record is useless.  It is sent after the lines of all
executions that have ended, so that no result waits for a record.  Losing a record does no harm.

With `perago run`, only the supervisor writes to the terminal, so executors forward their log records to it as text: no
exception is pickled, and the supervisor's own formats and masks apply.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import MARK
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import fields_of_record, trace_of
from perago.runtime.worker.executor_protocol import Logged
from perago.runtime.worker.inbox import Inbox

log = logging.getLogger("perago.tasklog")

BATCH_LINES = 500
MOST_RECORDS = 1000
"""Maximum number of records that may wait for a slow server.  Further ones are dropped."""
Send = Callable[[Attempt, Sequence[str]], None]
_LIKE_A_RECORD = re.compile(rf"(^|[\r\v\f\x1c-\x1e\x85\u2028\u2029])(?={re.escape(MARK)})")
"""Matches a record's mark at the beginning of a line, or after a character that some programs treat as a line break."""


@dataclass(slots=True)
class _Waiting:
    attempt: Attempt
    lines: list[str] = field(default_factory=list)
    record: str = ""
    sending: bool = False
    done: bool = False
    sent: threading.Event = field(default_factory=threading.Event)

    @property
    def lines_are_sent(self) -> bool:
        return not self.lines and not self.sending


class TaskLogs:
    """The unsent lines of all executions.  `send` is the orchestrator's `log` method."""

    def __init__(self, send: Send, *, interval: float = 1.0, inbox: Inbox | None = None) -> None:
        self._send = send
        self._inbox = inbox
        self._interval = interval
        self._waiting: dict[str, _Waiting] = {}
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="perago-tasklog", daemon=True)

    def __enter__(self) -> TaskLogs:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def begin(self, execution_id: str, attempt: Attempt) -> None:
        """Register an execution and the attempt that its lines belong to."""
        with self._changed:
            self._waiting[execution_id] = _Waiting(attempt)

    def add(self, execution_id: str, line: str) -> None:
        """Queue a line.  Lines from unknown or finished executions are ignored."""
        with self._changed:
            waiting = self._waiting.get(execution_id)
            if waiting is None or waiting.done:
                return
            # Readers trust records, and a body may print anything: make sure that its output cannot pass for a record.
            line = _LIKE_A_RECORD.sub(r"\1 ", line)
            waiting.lines.append(line)
        self._post(execution_id, waiting.attempt, line)

    def finish(self, execution_id: str, *, record: str = "", timeout: float = 0.0) -> bool:
        """Send the remaining lines, then the record.

        Waits up to `timeout` seconds for the lines, never for the record.  Returns whether the lines were sent by then.
        """
        with self._changed:
            waiting = self._waiting.get(execution_id)
            if waiting is None:
                return True
            first, waiting.done = not waiting.done, True
            if len(self._waiting) < MOST_RECORDS:
                waiting.record = waiting.record or record
            if waiting.lines_are_sent:
                waiting.sent.set()
            self._changed.notify()
        if first and record:
            self._post(execution_id, waiting.attempt, record)
        return waiting.sent.wait(timeout)

    def _post(self, execution_id: str, attempt: Attempt, line: str) -> None:
        if self._inbox is not None:
            self._inbox.post(Event("printed", attempt, execution_id, text=line))

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._stopped and not any(waiting.done for waiting in self._waiting.values()):
                    self._changed.wait(self._interval)
                stopping = self._stopped
                batches = [(key, waiting, _batch(waiting)) for key, waiting in self._waiting.items()]
            for key, waiting, lines in batches:
                if lines:
                    self._try_to_send(waiting.attempt, lines)
                self._settle(key, waiting)
            if self._finished_lines_wait():
                continue
            sent = self._send_record()
            # An exiting worker must not wait for an unreachable server once per record.
            if any(lines for _, _, lines in batches):
                continue
            if (sent is None and stopping) or (sent is False and self._stopped):
                return

    def _finished_lines_wait(self) -> bool:
        """Return whether a finished execution has unsent lines.  Lines of running executions do not delay records."""
        with self._changed:
            return any(waiting.done and waiting.lines for waiting in self._waiting.values())

    def _send_record(self) -> bool | None:
        """Send one record and return whether that worked, or None if no record is waiting.

        Records are sent one at a time, because lines that arrive in the meantime go first.
        """
        with self._changed:
            found = next((item for item in self._waiting.items() if item[1].done and item[1].record), None)
            if found is None:
                return None
            key, waiting = found
            record, waiting.record = waiting.record, ""
        sent = self._try_to_send(waiting.attempt, [record])
        self._settle(key, waiting)
        return sent

    def _settle(self, key: str, waiting: _Waiting) -> None:
        with self._changed:
            waiting.sending = False
            if waiting.done and not waiting.lines:
                waiting.sent.set()
                if not waiting.record:
                    self._waiting.pop(key, None)

    def _try_to_send(self, attempt: Attempt, lines: Sequence[str]) -> bool:
        try:
            self._send(attempt, lines)
        except Exception as error:
            # Catch every error: the next attempt's lines must still be sent.
            log.warning("%d lines of output of task %s were not sent: %s", len(lines), attempt.task_id, error)
            return False
        return True


def _batch(waiting: _Waiting) -> list[str]:
    lines = waiting.lines[:BATCH_LINES]
    del waiting.lines[:BATCH_LINES]
    waiting.sending = bool(lines)
    return lines


class ForwardingHandler(logging.Handler):
    """Forwards log records to the supervisor.

    In a process forked by a body, each record is formatted and passed to `beside` instead.  Such processes inherit the
    executor's end of the pipe, and messages from two writers would corrupt each other.
    """

    def __init__(self, send: Callable[[Logged], None], beside: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._send = send
        self._beside = beside
        self._pid = os.getpid()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Forward the record to the supervisor or, in a process forked by a body, pass it to `beside`."""
        try:
            if os.getpid() != self._pid:
                self._beside(self.format(record) + "\n")
                return
            texts = (record.getMessage(), trace_of(record))
            self._send(Logged(record.name, record.levelno, *texts, dict(fields_of_record(record))))
        except Exception:
            self.handleError(record)


def log_forwarded(record: Logged) -> None:
    """Log a record that an executor forwarded.  Runs in the supervisor."""
    extra: dict[str, object] = {"trace": record.trace}
    if record.attempt:
        extra["attempt"] = record.attempt
    logging.getLogger(record.logger).log(record.level, "%s", record.text, extra=extra)
