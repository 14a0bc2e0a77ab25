"""Reporting a result: send, then drop the claim.  The one way, for a worker's courier and for attempts that run inline.

The claim goes only when the orchestrator has answered: until then a twin must find it taken.

Attempts that run inline, without a worker: a transaction each, and its result sent.  For tests and trials.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from perago.declare.task import TaskDefinition
from perago.errors import OrchestratorNotFound
from perago.lake.base import Lake
from perago.orchestrator.base import Assignment, AttemptReporter
from perago.protocol.outcome import sendable
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.transaction import Transaction
from perago.runtime.execution_result import DeliveryResult, ExecutionResult, PendingResult, pending_result_of
from perago.runtime.internal_branches import drop_quietly
from perago.runtime.root.state_dir import new_execution_id


def deliver(
    orchestrator: AttemptReporter, lake: Lake, pending: PendingResult, *, worker_id: str
) -> DeliveryResult:
    """Send a result and drop its claim; `OrchestratorError`, and the claim stays, where there was no answer."""
    return finish(lake, send(orchestrator, pending, worker_id=worker_id))


def send(orchestrator: AttemptReporter, pending: PendingResult, *, worker_id: str) -> DeliveryResult:
    """Send a result; its claim stays until `finish`."""
    try:
        accepted = orchestrator.complete(pending.attempt, pending.outcome, worker_id=worker_id)
    except OrchestratorNotFound as gone:
        return DeliveryResult(pending, accepted=False, reason=str(gone))
    return DeliveryResult(pending, accepted, "" if accepted else "the task was over already")


def finish(lake: Lake, delivery: DeliveryResult) -> DeliveryResult:
    """What follows the orchestrator's answer."""
    drop_claim(lake, delivery.pending)
    return delivery


def give_up_on(lake: Lake, pending: PendingResult, why: str) -> DeliveryResult:
    """Send a result no more: its attempt can take none, or keeps silent."""
    return finish(lake, DeliveryResult(pending, accepted=False, reason=why))


def drop_claim(lake: Lake, pending: PendingResult) -> None:
    """Let the attempt's next publisher claim; a parcel whose publish may be in flight has no claim to drop."""
    if pending.claim is not None:
        drop_quietly(lake, pending.claim.repository, pending.claim.branch)


log = logging.getLogger("perago.executor")


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs attempts of the tasks it knows, in the calling thread."""

    tasks: Mapping[str, TaskDefinition]
    around: AttemptContext
    worker_id: str
    mask: Callable[[str], str]
    reason_limit: int = 500
    execution_id: Callable[[], str] = new_execution_id

    def execute(self, assignment: Assignment) -> ExecutionResult:
        """Run one attempt to its end and send what it has to say."""
        task, execution_id = self.tasks[assignment.attempt.task_name], self.execution_id()

        def hand_over(settled: ExecutionResult) -> None:
            self._report(pending_result_of(execution_id, assignment, settled))

        return Transaction(task, assignment, execution_id, self.around).run(hand_over)

    def _report(self, pending: PendingResult) -> None:
        outcome = sendable(pending.outcome, self.mask, self.reason_limit)
        around, task_id = self.around, pending.attempt.task_id
        pending = replace(pending, outcome=outcome)
        if not outcome.send:
            log.info("task %s: nothing is sent: %s", task_id, outcome.reason)
            give_up_on(around.lake, pending, outcome.reason or "")
            return
        done = deliver(around.orchestrator, around.lake, pending, worker_id=self.worker_id)
        if not done.accepted:
            log.warning("the result of task %s was not accepted: %s", task_id, done.reason)
