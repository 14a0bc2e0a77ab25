"""Sends what task bodies print to the orchestrator's task log, from a thread of its own.

The rule: nobody waits for it but `finish`, and that no longer than it is told to.  Lines are sent in batches, a
second after the first of them or when the attempt is done; lines that cannot be sent are dropped and said in our
own log.  The lines come bounded and masked (`runtime/output.py`).  Whoever looks on gets each line, and the record, at
once, by `added`.

The last thing sent for an execution is its record (`protocol/attempt_record.py`).  It goes in a call of its own, since the
orchestrator cuts a call that is too long and half a record is none; and after the lines of all that have ended, so that no
result waits for one.  A record that is lost costs nothing.

An executor's log, where its supervisor writes it: `perago run` has a table on the terminal, and writes alone to it.

The rule: a record crosses as words.  Nothing of an exception is pickled, and the supervisor's own formats and masks apply.
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
from perago.runtime.observe.logs import fields_of_record, trace_of
from perago.runtime.worker.executor_protocol import Logged

log = logging.getLogger("perago.tasklog")

BATCH_LINES = 500
MOST_RECORDS = 1000
"""So many may wait for a server that takes long; later ones are dropped."""
Send = Callable[[Attempt, Sequence[str]], None]
_LIKE_A_RECORD = re.compile(rf"(^|[\r\v\f\x1c-\x1e\x85\u2028\u2029])(?={re.escape(MARK)})")
"""At the beginning of a line, or of what some take for one."""
Added = Callable[[str, Attempt, str], None]
"""Takes the execution id, its attempt and one line; must not block."""


def tell_nobody(_execution_id: str, _attempt: Attempt, _line: str) -> None:
    """Where nobody looks on."""


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
    """The lines of all attempts in flight; `send` is the orchestrator's `log`."""

    def __init__(self, send: Send, *, interval: float = 1.0, added: Added = tell_nobody) -> None:
        self._send = send
        self._added = added
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
        """Lines of this execution belong to this attempt."""
        with self._changed:
            self._waiting[execution_id] = _Waiting(attempt)

    def add(self, execution_id: str, line: str) -> None:
        """Keep a line to be sent; a line of nobody, or one after the end, is not for the orchestrator."""
        with self._changed:
            waiting = self._waiting.get(execution_id)
            if waiting is None or waiting.done:
                return
            # Whoever shows attempts believes a record.  A body may print anything, so what it prints is none.
            line = _LIKE_A_RECORD.sub(r"\1 ", line)
            waiting.lines.append(line)
        self._added(execution_id, waiting.attempt, line)

    def finish(self, execution_id: str, *, record: str = "", timeout: float = 0.0) -> bool:
        """Send what is left, and then the record.

        Waits up to `timeout` for the lines, never for the record, and tells whether they were sent by then.
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
            self._added(execution_id, waiting.attempt, record)
        return waiting.sent.wait(timeout)

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
            if self._somebody_waits():
                continue
            sent = self._send_a_record()
            # Who leaves does not wait for a server that is gone, once for each record.
            if any(lines for _, _, lines in batches):
                continue
            if (sent is None and stopping) or (sent is False and self._stopped):
                return

    def _somebody_waits(self) -> bool:
        """Whether an execution has ended and some of its lines are not sent.  What others print holds up no record."""
        with self._changed:
            return any(waiting.done and waiting.lines for waiting in self._waiting.values())

    def _send_a_record(self) -> bool | None:
        """Send one record, since lines may have come meanwhile and go first; None where there is none."""
        with self._changed:
            found = next((one for one in self._waiting.items() if one[1].done and one[1].record), None)
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
            # Whatever it is, the next attempt's lines are still to be sent.
            log.warning("%d lines of output of task %s were not sent: %s", len(lines), attempt.task_id, error)
            return False
        return True


def _batch(waiting: _Waiting) -> list[str]:
    lines = waiting.lines[:BATCH_LINES]
    del waiting.lines[:BATCH_LINES]
    waiting.sending = bool(lines)
    return lines


class PassedOn(logging.Handler):
    """Says each record to the supervisor; `beside` takes the lines of processes that a body has forked.

    Those have our end of the pipe too, and two that write to it would spoil it.
    """

    def __init__(self, say: Callable[[Logged], None], beside: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._beside = beside
        self._pid = os.getpid()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on."""
        try:
            if os.getpid() != self._pid:
                self._beside(self.format(record) + "\n")
                return
            words = (record.getMessage(), trace_of(record))
            self._say(Logged(record.name, record.levelno, *words, dict(fields_of_record(record))))
        except Exception:
            self.handleError(record)


def log_again(said: Logged) -> None:
    """In the supervisor: log what an executor has logged."""
    extra: dict[str, object] = {"trace": said.trace}
    if said.attempt:
        extra["attempt"] = said.attempt
    logging.getLogger(said.logger).log(said.level, "%s", said.text, extra=extra)
