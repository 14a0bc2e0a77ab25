"""Attempts that run inline, without a worker: a transaction each, and its result sent.  For tests and trials."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from perago.declare.task import TaskDefinition
from perago.orchestrator.base import Assignment
from perago.protocol.outcome import sendable
from perago.runtime.attempt.delivery import deliver, give_up_on
from perago.runtime.attempt.surroundings import Surroundings
from perago.runtime.attempt.transaction import Transaction
from perago.runtime.ending import Parcel, Settled, parcel_of
from perago.runtime.root.identity import new_execution_id

log = logging.getLogger("perago.executor")


@dataclass(frozen=True, slots=True)
class Executor:
    """Runs attempts of the tasks it knows, in the calling thread."""

    tasks: Mapping[str, TaskDefinition]
    around: Surroundings
    worker_id: str
    mask: Callable[[str], str]
    reason_limit: int = 500
    execution_id: Callable[[], str] = new_execution_id

    def execute(self, assignment: Assignment) -> Settled:
        """Run one attempt to its end and send what it has to say."""
        task, execution_id = self.tasks[assignment.attempt.task_name], self.execution_id()

        def hand_over(settled: Settled) -> None:
            self._report(parcel_of(execution_id, assignment, settled))

        return Transaction(task, assignment, execution_id, self.around).run(hand_over)

    def _report(self, parcel: Parcel) -> None:
        outcome = sendable(parcel.outcome, self.mask, self.reason_limit)
        around, task_id = self.around, parcel.attempt.task_id
        parcel = replace(parcel, outcome=outcome)
        if not outcome.send:
            log.info("task %s: nothing is sent: %s", task_id, outcome.reason)
            give_up_on(around.lake, parcel, outcome.reason or "")
            return
        done = deliver(around.orchestrator, around.lake, parcel, worker_id=self.worker_id)
        if not done.accepted:
            log.warning("the result of task %s was not accepted: %s", task_id, done.reason)
