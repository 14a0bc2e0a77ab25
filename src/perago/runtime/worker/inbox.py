"""The supervisor's inbox: messages from other threads and from signal handlers.

Pollers, links, leases, task logs and the result sender only post messages.  The supervisor's thread handles them one at a
time, in the order in which they were posted.  If handling a message fails, that is an internal error: it is logged, and the
next message is handled, because it concerns another attempt or another slot.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perago.orchestrator.base import Assignment
from perago.runtime.execution_result import DeliveryResult, PendingResult
from perago.runtime.observe.events import Event
from perago.runtime.observe.health import UNHEALTHY_AFTER_SECONDS
from perago.runtime.worker.executor_protocol import Answer, ExecutorExit

log = logging.getLogger("perago.mailbox")


@dataclass(frozen=True, slots=True)
class Polled:
    """A slot pool's poller received attempts."""

    pool: int
    found: Sequence[Assignment]


@dataclass(frozen=True, slots=True)
class PollerEnded:
    """A slot pool's poller has stopped and will post no more attempts."""

    pool: int


@dataclass(frozen=True, slots=True)
class ExecutorAnswered:
    """A slot's executor sent a message."""

    slot: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class ExecutorGone:
    """A slot's executor is gone."""

    slot: int
    executor_exit: ExecutorExit


@dataclass(frozen=True, slots=True)
class AttemptOver:
    """An execution's attempt is over, for the reason `why`."""

    execution_id: str
    why: str


@dataclass(frozen=True, slots=True)
class ResultDelayed:
    """A result could not be sent yet.  The fields say for how long, why, and whether to stop extending the lease."""

    pending: PendingResult
    seconds: float
    reason: str
    let_go: bool = False

    @property
    def too_long(self) -> bool:
        """True if the delay makes the worker unhealthy."""
        return self.seconds >= UNHEALTHY_AFTER_SECONDS


@dataclass(frozen=True, slots=True)
class ResultStored:
    """A result was written to the outbox, or could not be written because of `error`."""

    pending: PendingResult
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class ExecutionFinished:
    """An execution whose result must not be sent has finished: its claim is dropped and its task log is complete."""

    execution_id: str


@dataclass(frozen=True, slots=True)
class WorkerProbed:
    """A self-check probe has ended.  `problem` says why it failed, or is None."""

    problem: str | None = None


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The worker was asked to stop, either by the named signal or, if the name is empty, by a call of `drain`."""

    signal: str = ""


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """A dead worker left this attempt in flight, and it is safe to report it as FAILED."""

    pending: PendingResult


AboutAttempts = Polled | PollerEnded | ExecutorAnswered | ExecutorGone | AttemptOver
AboutResults = DeliveryResult | ResultDelayed | ResultStored | ExecutionFinished | WorkerDied
Message = AboutAttempts | AboutResults | WorkerProbed | StopRequested | Event
"""All messages that may be posted.  An `Event` is only published; the supervisor does not act on it."""


class Inbox:
    """Messages for the supervisor's thread, in the order in which they were posted."""

    def __init__(self) -> None:
        # SimpleQueue is reentrant: a signal handler may post while its thread is posting.
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def post(self, message: Message) -> None:
        """Add a message.  Safe to call from any thread and from signal handlers."""
        self._messages.put(message)

    def handle_all(self, handle: Callable[[Message], None], *, timeout: float) -> None:
        """Wait up to `timeout` seconds for a message, then handle all queued messages."""
        try:
            message = self._messages.get(timeout=timeout)
            while True:
                try:
                    handle(message)
                except Exception:
                    log.exception("internal error; the worker continues")
                message = self._messages.get_nowait()
        except queue.Empty:
            pass
