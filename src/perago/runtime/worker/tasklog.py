"""Sends what task bodies print to the orchestrator's task log, from a thread of its own.

The rule: nobody waits for it but `finish`, and that no longer than it is told to.  Lines are sent in batches, a
second after the first of them or when the attempt is done; lines that cannot be sent are dropped and said in our
own log.  The lines come bounded and masked (`runtime/output.py`).  Whoever looks on gets each line at once, by `added`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perago.protocol.attempt import Attempt

log = logging.getLogger("perago.tasklog")

BATCH_LINES = 500
Send = Callable[[Attempt, Sequence[str]], None]
Added = Callable[[str, Attempt, str], None]
"""Takes the execution id, its attempt and one line; must not block."""


def tell_nobody(_execution_id: str, _attempt: Attempt, _line: str) -> None:
    """Where nobody looks on."""


@dataclass(slots=True)
class _Waiting:
    attempt: Attempt
    lines: list[str] = field(default_factory=list)
    done: bool = False
    sent: threading.Event = field(default_factory=threading.Event)


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
            if waiting is None:
                return
            waiting.lines.append(line)
        self._added(execution_id, waiting.attempt, line)

    def finish(self, execution_id: str, *, timeout: float = 0.0) -> bool:
        """Send what is left; waits up to `timeout` and tells whether it was done by then."""
        with self._changed:
            waiting = self._waiting.get(execution_id)
            if waiting is None:
                return True
            waiting.done = True
            self._changed.notify()
        return waiting.sent.wait(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._stopped and not any(waiting.done for waiting in self._waiting.values()):
                    self._changed.wait(self._interval)
                stopping = self._stopped
                batches = [(key, waiting, self._batch(waiting)) for key, waiting in self._waiting.items()]
            for key, waiting, lines in batches:
                if lines:
                    self._try_to_send(waiting.attempt, lines)
                self._settle(key, waiting)
            if stopping and not any(lines for _, _, lines in batches):
                return

    def _batch(self, waiting: _Waiting) -> list[str]:
        lines = waiting.lines[:BATCH_LINES]
        del waiting.lines[:BATCH_LINES]
        return lines

    def _settle(self, key: str, waiting: _Waiting) -> None:
        with self._changed:
            if waiting.done and not waiting.lines:
                self._waiting.pop(key, None)
                waiting.sent.set()

    def _try_to_send(self, attempt: Attempt, lines: Sequence[str]) -> None:
        try:
            self._send(attempt, lines)
        except Exception as error:
            # Whatever it is, the next attempt's lines are still to be sent.
            log.warning("%d lines of output of task %s were not sent: %s", len(lines), attempt.task_id, error)
