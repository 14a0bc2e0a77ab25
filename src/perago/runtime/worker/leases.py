"""Leases: the supervisor extends the lease of every attempt in flight, from poll to accepted result.

The interval is the smaller of the publish budget's `heartbeat_interval_seconds` and a third of the response timeout,
so that two extensions may fail before the lease is lost.  Each extension also checks that the attempt is still current; an
execution whose attempt is over is stopped.  Conductor occasionally queues an attempt again under the same task id.  The
execution then continues: it gets a twin, and the claim decides which of the two may publish.

If the orchestrator does not respond, nothing is stopped.  A lease is extended even if its task could not be read, and a
failed extension is retried after the usual interval.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial

from perago.declare.task import TaskDefinition
from perago.errors import OrchestratorError, OrchestratorNotFound
from perago.orchestrator.base import Orchestrator
from perago.protocol.attempt import IN_PROGRESS, Attempt, AttemptSnapshot
from perago.runtime.observe.events import Event
from perago.runtime.observe.health import UNHEALTHY_AFTER_SECONDS, HealthState
from perago.runtime.worker.inbox import AttemptOver, Inbox
from perago.runtime.worker.job_scheduler import JobScheduler

log = logging.getLogger("perago.leases")

DEFAULT_RESPONSE_SECONDS = 60.0
QUEUED_AGAIN = "SCHEDULED"


def lease_interval(task: TaskDefinition | None, response_timeout_seconds: float) -> float:
    """Return the interval, in seconds, at which an attempt's lease is extended."""
    if task is None:
        return (response_timeout_seconds or DEFAULT_RESPONSE_SECONDS) / 3
    third = (response_timeout_seconds or task.controls.timeout.response_seconds) / 3
    budget = task.controls.publish_budget
    return min(third, budget.heartbeat_interval_seconds) if budget else third


class LeaseKeeper:
    """Extends the leases of executions from `keep` until `let_go`.

    Posts a message if a lease cannot be extended, or if its attempt is over.
    """

    def __init__(
        self,
        orchestrator: Orchestrator,
        worker_id: str,
        inbox: Inbox,
        *,
        health_state: HealthState | None = None,
        threads: int = 2,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._orchestrator = orchestrator
        self._worker_id = worker_id
        self._inbox = inbox
        self._health_state = health_state or HealthState([])
        self._clock = clock
        self._extended: dict[str, float] = {}
        self._lock = threading.Lock()
        self._scheduler = JobScheduler("leases", threads=threads, clock=clock)

    def __enter__(self) -> LeaseKeeper:
        self._scheduler.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._scheduler.__exit__()

    def keep(self, execution_id: str, attempt: Attempt, interval: float) -> None:
        """Extend the attempt's lease from now on.

        Leases are tracked per execution, not per task: if two executions of one attempt run in this worker, the end of
        the loser must not stop extensions for the winner.
        """
        with self._lock:
            self._extended[execution_id] = self._clock()
        extend = partial(self._extend, execution_id, attempt, interval)
        self._scheduler.add(execution_id, extend, after=interval)

    def let_go(self, execution_id: str) -> None:
        """Stop extending the lease: the result was accepted, or the attempt no longer belongs to this worker."""
        self._scheduler.cancel(execution_id)
        with self._lock:
            self._extended.pop(execution_id, None)
            self._health_state.clear_problem("lease", execution_id)

    def _extend(self, execution_id: str, attempt: Attempt, interval: float) -> float | None:
        began = self._clock()
        try:
            over = why_over(attempt, self._orchestrator.current(attempt))
        except OrchestratorNotFound as gone:
            over = str(gone)
        except Exception as error:
            log.warning(
                "could not read task %s, extending its lease anyway: %s",
                attempt.task_id,
                error,
                exc_info=_internal(error),
            )
            over = None
        if over is not None:
            self._inbox.post(AttemptOver(execution_id, over))
            return None
        try:
            self._orchestrator.extend_lease(attempt, worker_id=self._worker_id)
            self._note_extended(execution_id)
        except Exception as error:
            log.warning(
                "the lease of task %s was not extended, will retry: %s",
                attempt.task_id,
                error,
                exc_info=_internal(error),
            )
            self._note_failure(execution_id, attempt, f"{error}", max(UNHEALTHY_AFTER_SECONDS, 2 * interval))
        # A slow response must not lengthen the interval.
        return max(0.0, interval - (self._clock() - began))

    def _note_extended(self, execution_id: str) -> None:
        with self._lock:
            if execution_id in self._extended:
                self._extended[execution_id] = self._clock()
                self._health_state.clear_problem("lease", execution_id)

    def _note_failure(self, execution_id: str, attempt: Attempt, why: str, unhealthy_after: float) -> None:
        self._inbox.post(Event("lease-failed", attempt))
        with self._lock:
            # Without an entry, the lease was let go in the meantime, and `since` is negative.
            since = self._clock() - self._extended.get(execution_id, math.inf)
            if since >= unhealthy_after:
                text = f"the lease of task {attempt.task_id} ({attempt.task_name}) was not extended for {since:.0f} s: {why}"
                self._health_state.set_problem("lease", text, execution_id)


def _internal(error: Exception) -> Exception | None:
    """Return the error if its traceback should be logged, otherwise None.

    An `OrchestratorError` is expected, so it is logged without a traceback.
    """
    return None if isinstance(error, OrchestratorError) else error


def why_over(attempt: Attempt, fresh: AttemptSnapshot) -> str | None:
    """Return why the attempt can never be current again, or None if it still can."""
    if fresh.retry_count != attempt.retry_count:
        return f"its retry count is {fresh.retry_count} now, not {attempt.retry_count}"
    if fresh.status in {IN_PROGRESS, QUEUED_AGAIN}:
        return None
    return f"it is {fresh.status}"
