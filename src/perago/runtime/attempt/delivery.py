"""Delivers results to the orchestrator, both for a worker's result sender and for attempts that run inline.

`Executor` runs attempts inline, for tests and trials.

A claim is dropped only after the orchestrator has responded.  Until then, a twin must find it taken.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from perago.declare.task import TaskDefinition
from perago.errors import OrchestratorNotFound
from perago.lake.base import StagingLake
from perago.orchestrator.base import Assignment, AttemptReporter
from perago.protocol.outcome import prepare_for_sending
from perago.runtime.attempt.context import AttemptContext
from perago.runtime.attempt.run_steps import new_transaction
from perago.runtime.execution_result import DeliveryResult, ExecutionResult, PendingResult, pending_result_of
from perago.runtime.internal_branches import drop_quietly
from perago.runtime.root.state_dir import new_execution_id

log = logging.getLogger("perago.executor")


def deliver(
    orchestrator: AttemptReporter, lake: StagingLake, pending: PendingResult, *, worker_id: str
) -> DeliveryResult:
    """Send a result and drop its claim.

    If the orchestrator does not respond, raises `OrchestratorError` and keeps the claim.
    """
    return finish(lake, send(orchestrator, pending, worker_id=worker_id))


def send(orchestrator: AttemptReporter, pending: PendingResult, *, worker_id: str) -> DeliveryResult:
    """Send a result.  Its claim is kept until `finish` is called."""
    try:
        accepted = orchestrator.complete(pending.attempt, pending.outcome, worker_id=worker_id)
    except OrchestratorNotFound as gone:
        return DeliveryResult(pending, accepted=False, reason=str(gone))
    return DeliveryResult(pending, accepted, "" if accepted else "the task was over already")


def finish(lake: StagingLake, delivery: DeliveryResult) -> DeliveryResult:
    """Drop the claim after the orchestrator has responded or the result has been discarded.  Returns `delivery`."""
    drop_claim(lake, delivery.pending)
    return delivery


def give_up_on(lake: StagingLake, pending: PendingResult, why: str) -> DeliveryResult:
    """Discard a result that must not be sent, and drop its claim."""
    return finish(lake, DeliveryResult(pending, accepted=False, reason=why))


def drop_claim(lake: StagingLake, pending: PendingResult) -> None:
    """Drop the result's claim, if it carries one.

    If a publish may still be in flight, the result carries no claim, so the claim branch is kept.
    """
    if pending.claim is not None:
        drop_quietly(lake, pending.claim.repository, pending.claim.branch)


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs attempts of the given tasks in the calling thread."""

    tasks: Mapping[str, TaskDefinition]
    context: AttemptContext
    worker_id: str
    mask: Callable[[str], str]
    reason_limit: int = 500
    execution_id: Callable[[], str] = new_execution_id

    def execute(self, assignment: Assignment) -> ExecutionResult:
        """Run one attempt to completion and send its result, unless its outcome must not be sent."""
        task, execution_id = self.tasks[assignment.attempt.task_name], self.execution_id()

        def hand_over(result: ExecutionResult) -> None:
            self._report(pending_result_of(execution_id, assignment, result))

        return new_transaction(task, assignment, execution_id, self.context).run(hand_over)

    def _report(self, pending: PendingResult) -> None:
        outcome = prepare_for_sending(pending.outcome, self.mask, self.reason_limit)
        context, task_id = self.context, pending.attempt.task_id
        pending = replace(pending, outcome=outcome)
        if not outcome.send:
            log.info("no result is sent for task %s: %s", task_id, outcome.reason)
            give_up_on(context.lake, pending, outcome.reason or "")
            return
        done = deliver(context.orchestrator, context.lake, pending, worker_id=self.worker_id)
        if not done.accepted:
            log.warning("the result of task %s was not accepted: %s", task_id, done.reason)
