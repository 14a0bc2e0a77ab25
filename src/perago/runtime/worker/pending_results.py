"""Pending results: results of ended executions that the orchestrator has not accepted or rejected yet.

All of this runs on the supervisor's thread, except `_before_sending`; the result sender's threads only post messages.  A
result that waits too long, or an outbox that cannot be written, is published as an event and set as a health problem.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from perago.lake.base import StagingLake
from perago.orchestrator.base import Orchestrator
from perago.runtime.execution_result import DeliveryResult, PendingResult
from perago.runtime.observe.events import Event
from perago.runtime.observe.health import HealthState
from perago.runtime.observe.logs import attempt_fields
from perago.runtime.worker.executions import EventPublisher, Execution, Executions
from perago.runtime.worker.inbox import Inbox, ResultDelayed
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.outbox import Outbox
from perago.runtime.worker.plan import WorkerPlan
from perago.runtime.worker.result_sender import ResultSender

if TYPE_CHECKING:
    from perago.runtime.worker.executor_exit import DeadExecutorCleanup

log = logging.getLogger("perago.deliveries")


class PendingResults:
    """A worker's unsent results.

    An attempt's lease is extended until its result is accepted or the attempt is over.
    """

    def __init__(
        self,
        executions: Executions,
        cleanup: DeadExecutorCleanup,
        event_publisher: EventPublisher,
        *,
        health_state: HealthState,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._executions = executions
        self._cleanup = cleanup
        self._health_state = health_state
        self._event_publisher = event_publisher
        self._clock = clock
        self._unsent: set[str] = set()
        self._not_kept: set[str] = set()

    def __len__(self) -> int:
        return len(self._unsent)

    def open(
        self, plan: WorkerPlan, ports: tuple[StagingLake, Orchestrator], *, chores: JobScheduler, inbox: Inbox
    ) -> None:
        """Create the result sender and, if necessary, the outbox."""
        lake, orchestrator = ports
        self._sender = ResultSender(
            orchestrator,
            lake,
            Outbox(plan.settings.workspace_root, orchestrator.address),
            chores,
            plan.worker_id,
            plan.settings.failure_reason_max_length,
            inbox,
            self._executions.mask,
            clock=self._clock,
        )

    def send(self, execution: Execution, pending: PendingResult) -> None:
        """Send an execution's result, retrying until the orchestrator responds."""
        self._unsent.add(execution.id)
        self._sender.send(pending, partial(self._before_sending, execution))

    def resume(self) -> frozenset[str]:
        """Send the results that an earlier worker left in the outbox.  Returns the ids of their tasks."""
        found = tuple(self._sender.outbox.unsent())
        for pending in found:
            log.info(
                "found a result of an earlier worker in the outbox, sending it: task %s",
                pending.attempt.task_id,
            )
            self._resume(pending)
        return frozenset(pending.attempt.task_id for pending in found)

    def report(self, pending: PendingResult) -> None:
        """Send the FAILED of an attempt that a dead worker left, as if that worker had left the result in the outbox."""
        self._sender.keep(pending)
        self._resume(pending)

    def in_outbox(self, execution_id: str) -> bool:
        """Return whether the outbox has a result of the execution, even one that cannot be read."""
        return self._sender.outbox.has(execution_id)

    def _resume(self, pending: PendingResult) -> None:
        try:
            self._executions.keep_lease(pending.execution_id, pending.attempt)
        except (TypeError, ValueError) as error:
            log.warning("the result of task %s stays in the outbox: %s", pending.attempt.task_id, error)
            return
        self._unsent.add(pending.execution_id)
        self._sender.resume(pending)

    def on_delivered(self, delivery: DeliveryResult) -> None:
        """Handle the orchestrator's response to a result: end the execution and publish an event."""
        pending = delivery.pending
        self._unsent.discard(pending.execution_id)
        self._health_state.clear_problem("result", pending.execution_id)
        self._clear_not_kept(pending.execution_id)
        execution = self._executions.end(pending.execution_id)
        event = Event(
            "accepted" if delivery.accepted else "not-accepted",
            pending.attempt,
            pending.execution_id,
            result=execution.result if execution else None,
            pending=pending,
            died=execution is not None and execution.died,
            text=delivery.reason,
        )
        self._event_publisher.publish(event)

    def on_delayed(self, delay: ResultDelayed) -> None:
        """Handle a result that could not be sent yet."""
        attempt, execution_id = delay.pending.attempt, delay.pending.execution_id
        if execution_id not in self._unsent:
            return
        if delay.too_long:
            result = f"the result of task {attempt.task_id} ({attempt.task_name})"
            problem = f"{result} has not been accepted for {delay.seconds:.0f} s: {delay.reason}"
            self._health_state.set_problem("result", problem, execution_id)
        if delay.let_go:
            self._executions.let_go(execution_id)
        self._event_publisher.publish(Event("not-sent", attempt, execution_id, text=delay.reason))

    def on_stored(self, pending: PendingResult, error: Exception | None) -> None:
        """Record whether a result could be written to the outbox."""
        if error is None:
            self._clear_not_kept(pending.execution_id)
            return
        if pending.execution_id not in self._unsent:
            return
        if pending.execution_id not in self._not_kept:
            log.error(
                "cannot write the result to the outbox; it is sent from memory and lost if the worker dies first: %s",
                error,
                extra={"attempt": attempt_fields(pending.attempt, pending.execution_id)},
            )
            self._event_publisher.publish(
                Event("not-kept", pending.attempt, pending.execution_id, text=str(error))
            )
        self._not_kept.add(pending.execution_id)
        self._health_state.set_problem(
            "outbox", f"results cannot be written to the outbox, and are sent from memory: {error}"
        )

    def _clear_not_kept(self, execution_id: str) -> None:
        self._not_kept.discard(execution_id)
        if not self._not_kept:
            self._health_state.clear_problem("outbox")

    def _before_sending(self, execution: Execution) -> None:
        """Clean up if the executor died, then complete the task log.  Runs on the sending thread."""
        if execution.died:
            self._cleanup.clean(execution)
        self._executions.finish_log(execution)
