"""Runs assignments: a transaction each, its result sent, its claim dropped afterwards."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perago.declare.task import TaskDefinition
from perago.orchestrator.base import Assignment
from perago.protocol.attempt import Attempt
from perago.protocol.outcome import sendable
from perago.runtime.attempt.publisher import drop_quietly
from perago.runtime.attempt.transaction import Settled, Surroundings, Transaction

log = logging.getLogger("perago.executor")


def new_execution_id() -> str:
    """An id that no other execution has, of characters that every name takes."""
    return secrets.token_hex(8)


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
        task = self.tasks[assignment.attempt.task_name]
        transaction = Transaction(task, assignment, self.execution_id(), self.around)
        return transaction.run(lambda settled: self._send(assignment.attempt, settled))

    def _send(self, attempt: Attempt, settled: Settled) -> None:
        outcome = sendable(settled.outcome, self.mask, self.reason_limit)
        if outcome.send:
            if not self.around.orchestrator.complete(attempt, outcome, worker_id=self.worker_id):
                log.warning("the result of task %s was not accepted: it was over already", attempt.task_id)
        else:
            log.info("task %s: nothing is sent: %s", attempt.task_id, outcome.reason)
        # Only now: until the orchestrator has answered, a twin must find the claim taken.
        if settled.claim is not None:
            drop_quietly(self.around.lake, settled.claim.repository, settled.claim.branch)
