"""What a dead executor leaves behind, removed by name: the workdir and staging branches of its executions.

Its staging goes before anything is said about the attempt.  The claim of one that died while it published stays: its
request may be in flight, and the claim tells the retry to send a barrier.

Executors come and go: what becomes of an execution whose executor is gone, or is stopped because its attempt is over.

    died before it began     handed out again, a few times
    died                     FAILED with the reason is sent for it
    stopped, being over      nothing is sent
    died after its ending    only what it left behind is removed

Like the supervisor, whose part it is, it runs on the one thread that decides.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perago.errors import LakeError
from perago.lake.base import Lake
from perago.protocol.names import claim_branch_name, staging_prefix, workdir_name
from perago.protocol.outcome import Outcome, describe, executor_died
from perago.protocol.steps import step_named
from perago.runtime.execution_result import Claim, PendingResult
from perago.runtime.internal_branches import drop_quietly
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import TOLD
from perago.runtime.root.workdirs import remove_workdir
from perago.runtime.worker.event_publisher import EventPublisher
from perago.runtime.worker.executions import DIED, STOPPED, Executions, fields_of
from perago.runtime.worker.executor_protocol import ExecutorExit
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.pending_results import PendingResults
from perago.runtime.worker.self_check import SelfCheck
from perago.runtime.worker.slots import Execution, Slot

log = logging.getLogger("perago.dead_executor")


@dataclass(frozen=True, slots=True)
class DeadExecutorCleanup:
    """Removes what executions have left in a root and in a lake."""

    root: Path
    lake: Lake

    def clean(self, execution: Execution, claim: Claim | None = None) -> None:
        """Remove all that an execution of a dead process left; `claim` where its attempt is over."""
        self.remove_workdir(execution)
        self._drop_staging(execution)
        self.drop_claim(claim)

    def remove_workdir(self, execution: Execution) -> None:
        """Remove the folder of an execution whose process is dead."""
        try:
            remove_workdir(self.root, workdir_name(execution.attempt.task_id, execution.id))
        except OSError as error:
            log.warning("failed to clean workdir of execution %s: %s", execution.id, error)

    def drop_claim(self, claim: Claim | None) -> None:
        """Drop the claim of an attempt that is over."""
        if claim is not None:
            drop_quietly(self.lake, claim.repository, claim.branch)

    def _drop_staging(self, execution: Execution) -> None:
        repository = _given(execution.assignment.input, "repository")
        may_have = execution.unsure or step_named(execution.step).may_have_staging
        if repository is None or not may_have:
            return
        try:
            prefix = staging_prefix(execution.attempt, execution.id)
            for branch in self.lake.branches(repository, prefix):
                drop_quietly(self.lake, repository, branch.name)
        except LakeError as error:
            log.warning("failed to clean staging workspace of execution %s: %s", execution.id, error)


def claim_of(execution: Execution) -> Claim | None:
    """The claim that a dead execution may hold and that may go once its attempt is over."""
    repository = _given(execution.assignment.input, "repository")
    branch = _given(execution.assignment.input, "branch")
    # Who was not heard to the end may have begun to publish.
    free = not execution.unsure and step_named(execution.step).may_give_up_claim
    if repository is None or branch is None or not free:
        return None
    return Claim(repository, claim_branch_name(execution.attempt, branch))


def _given(payload: Mapping[str, Any], field: str) -> str | None:
    workspace = payload.get("workspace")
    if isinstance(workspace, list) and workspace:
        # What is joined is of one repository and branch.
        workspace = workspace[0]
    value = workspace.get(field) if isinstance(workspace, Mapping) else None
    return value if isinstance(value, str) else None


supervisor_log = logging.getLogger("perago.supervisor")

MOST_TRIES_TO_BEGIN = 3


@dataclass(frozen=True, slots=True)
class ExecutorExitHandler:
    """Sees to executors that start and end; `waiting` gets the executions that may be handed out again."""

    executions: Executions
    waiting: deque[Execution]
    deliveries: PendingResults
    cleanup: DeadExecutorCleanup
    chores: JobScheduler
    self_check: SelfCheck
    event_publisher: EventPublisher

    def started(self, slot: Slot, started: int | Exception) -> None:
        """A slot has had so many executors with this one, or there is no room for one."""
        if isinstance(started, Exception):
            reason = describe(started)
            supervisor_log.error(
                "executor %d could not be started, and is tried again: %s", slot.number, reason
            )
            self.self_check.not_ready(slot.number, reason)
        elif started > 1:
            self.event_publisher.tell(Event("restarted", text=f"executor {slot.number}"))

    def gone(self, slot: Slot, executor_exit: ExecutorExit, *, forced: bool) -> None:
        """The executor of a slot is gone; where it was killed to end the worker, nothing is said."""
        by_itself, stale, running = slot.state != "leaving", slot.stopped_stale, slot.execution
        how = executor_exit.how
        if running is not None and not executor_exit.heard:
            running.unsure = True
        if slot.state == "starting":
            self.self_check.not_ready(slot.number, slot.broken or f"it ended with {how}")
        left = slot.on_exit(time.monotonic(), by_itself=by_itself)
        if by_itself:
            supervisor_log.error(
                "executor %d died: %s%s",
                *(slot.number, how, f" at step {running.step!r}" if running else ""),
                extra={**(fields_of(running) if running else {}), TOLD: True},
            )
            attempt, step = (running.attempt, running.step) if running else (None, "")
            self.event_publisher.tell(Event("died", attempt, running.id if running else "", step, text=how))
        for execution in left:
            if forced:
                self.cleanup.remove_workdir(execution)
                if execution.settled is None:
                    self.executions.stop(execution, STOPPED)
            elif execution.settled is not None:
                self.clean_later(execution)
            elif stale:
                self.executions.stop(execution, STOPPED)
                self.event_publisher.of("stopped", execution)
                self.clean_later(execution)
            else:
                self._died(execution, how)

    def over(self, execution: Execution, why: str, slot: Slot | None) -> None:
        """The orchestrator has moved on from an attempt that waits here, or runs in a slot: stop it, say nothing."""
        if execution.settled is not None or execution.died:
            return
        supervisor_log.warning("the attempt is over (%s) and is stopped", why, extra=fields_of(execution))
        if slot is not None:
            slot.stopped_stale = True
            slot.kill()
        elif execution in self.waiting:
            self.waiting.remove(execution)
            self.executions.stop(execution, STOPPED)
            self.event_publisher.of("stopped", execution, text=why)

    def say_for(self, execution: Execution, outcome: Outcome) -> None:
        """Say for an attempt what it cannot say itself any more."""
        execution.ending = execution.ending or outcome.status
        pending = PendingResult(execution.id, execution.attempt, outcome, claim=claim_of(execution))
        self.deliveries.send(execution, pending)

    def _died(self, execution: Execution, how: str) -> None:
        if not execution.step and execution.given < MOST_TRIES_TO_BEGIN:
            self.waiting.appendleft(execution)
            return
        execution.died, execution.ending = True, DIED
        execution.over(time.time())
        if not execution.step:
            self.self_check.failed(f"executors died with {how} before they began")
        self.say_for(execution, executor_died(how, execution.step))

    def clean_later(self, execution: Execution) -> None:
        """Remove what an execution has left that cannot do it itself."""
        # The claim of a settled execution is the courier's.
        claim = None if execution.settled is not None else claim_of(execution)
        self.chores.add(("clean", execution.id), lambda: self.cleanup.clean(execution, claim))
