"""Handles executors that are gone: decides what happens to their executions, and cleans up on their behalf.

    died before the first step     the execution is handed out again, up to 3 times in all
    died                           FAILED is sent on its behalf, with the reason
    stopped: the attempt is over   nothing is sent
    died after its result          only its workdir and staging branches are removed

Staging branches are dropped before anything is sent about the attempt.  The claim of an execution that died while
publishing is kept: its request may still be in flight, and the claim tells the retry to send a barrier.

`ExecutorExitHandler` runs on the supervisor's thread only; `DeadExecutorCleanup` runs on any thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perago.errors import LakeError
from perago.lake.base import StagingLake
from perago.orchestrator.base import Assignment
from perago.protocol.names import claim_branch_name, staging_prefix, workdir_name
from perago.protocol.outcome import Outcome, describe, executor_died
from perago.protocol.steps import step_named
from perago.runtime.execution_result import Claim, PendingResult
from perago.runtime.internal_branches import drop_quietly
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import HAS_EVENT
from perago.runtime.root.workdirs import remove_workdir
from perago.runtime.worker.executions import DIED, STOPPED, EventPublisher, Execution, Executions, fields_of
from perago.runtime.worker.executor_protocol import ExecutorExit
from perago.runtime.worker.in_flight import InFlight
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.pending_results import PendingResults
from perago.runtime.worker.self_check import SelfCheck
from perago.runtime.worker.slots import Slot

log = logging.getLogger("perago.dead_executor")
supervisor_log = logging.getLogger("perago.supervisor")

MOST_STARTS = 3
"""Maximum number of times that an execution is handed to an executor without ever beginning its first step."""


@dataclass(frozen=True, slots=True)
class DeadExecutorCleanup:
    """Removes the workdirs and branches of executions whose executor is gone."""

    root: Path
    lake: StagingLake

    def clean(self, execution: Execution, claim: Claim | None = None) -> None:
        """Remove an execution's workdir and staging branches, and its claim if one is passed."""
        self.remove_workdir(execution)
        self._drop_staging(execution)
        self.drop_claim(claim)

    def clean_left_behind(self, record: InFlight) -> None:
        """Remove the workdir and staging branches of an execution whose whole worker is gone."""
        workspace = {"repository": record.repository} if record.repository else None
        assignment = Assignment(record.attempt, {"workspace": workspace})
        self.clean(Execution(record.execution_id, assignment, unsure=True))

    def remove_workdir(self, execution: Execution) -> None:
        """Remove an execution's workdir.  Failures are logged."""
        try:
            remove_workdir(self.root, workdir_name(execution.attempt.task_id, execution.id))
        except OSError as error:
            log.warning("failed to clean workdir of execution %s: %s", execution.id, error)

    def drop_claim(self, claim: Claim | None) -> None:
        """Drop the claim, if any, of an attempt that is over."""
        if claim is not None:
            drop_quietly(self.lake, claim.repository, claim.branch)

    def _drop_staging(self, execution: Execution) -> None:
        repository = _workspace_field(execution.assignment.input, "repository")
        may_have_staging = execution.unsure or step_named(execution.step).may_have_staging
        if repository is None or not may_have_staging:
            return
        try:
            prefix = staging_prefix(execution.attempt, execution.id)
            for branch in self.lake.branches(repository, prefix):
                drop_quietly(self.lake, repository, branch.name)
        except LakeError as error:
            log.warning("failed to clean staging workspace of execution %s: %s", execution.id, error)


def claim_of(execution: Execution) -> Claim | None:
    """Return the claim to drop for a dead execution.

    Returns None if the execution cannot have one, or if the claim must stay because the execution may have published.
    """
    repository = _workspace_field(execution.assignment.input, "repository")
    branch = _workspace_field(execution.assignment.input, "branch")
    # An execution whose last messages were lost may have begun to publish.
    droppable = not execution.unsure and step_named(execution.step).may_give_up_claim
    if repository is None or branch is None or not droppable:
        return None
    return Claim(repository, claim_branch_name(execution.attempt, branch))


def _workspace_field(payload: Mapping[str, Any], field: str) -> str | None:
    workspace = payload.get("workspace")
    if isinstance(workspace, list) and workspace:
        # Joined workspaces share one repository and branch.
        workspace = workspace[0]
    value = workspace.get(field) if isinstance(workspace, Mapping) else None
    return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True)
class ExecutorExitHandler:
    """Handles executor starts and exits.  Executions that may be handed out again are put back into `waiting`."""

    executions: Executions
    waiting: deque[Execution]
    pending_results: PendingResults
    cleanup: DeadExecutorCleanup
    chores: JobScheduler
    self_check: SelfCheck
    event_publisher: EventPublisher

    def on_start(self, slot: Slot, started: int | Exception) -> None:
        """Handle the start of a slot's executor.

        `started` is the number of executors that the slot has started so far, or the error if this start failed.
        """
        if isinstance(started, Exception):
            reason = describe(started)
            supervisor_log.error("could not start executor %d, will retry: %s", slot.number, reason)
            self.self_check.not_ready(slot.number, reason)
        elif started > 1:
            self.event_publisher.publish(Event("restarted", text=f"executor {slot.number}"))

    def on_exit(self, slot: Slot, executor_exit: ExecutorExit, *, forced: bool) -> None:
        """Handle the exit of a slot's executor.  During a forced shutdown, nothing is reported to the orchestrator."""
        by_itself, stale, running = slot.state != "leaving", slot.stopped_stale, slot.execution
        how = executor_exit.reason
        if running is not None and not executor_exit.complete:
            running.unsure = True
        if slot.state == "starting":
            self.self_check.not_ready(slot.number, slot.broken or f"it ended with {how}")
        left = slot.on_exit(time.monotonic(), by_itself=by_itself)
        if by_itself:
            supervisor_log.error(
                "executor %d died: %s%s",
                *(slot.number, how, f" at step {running.step!r}" if running else ""),
                extra={**(fields_of(running) if running else {}), HAS_EVENT: True},
            )
            attempt, step = (running.attempt, running.step) if running else (None, "")
            self.event_publisher.publish(
                Event("died", attempt, running.id if running else "", step, text=how)
            )
        for execution in left:
            if forced:
                self.cleanup.remove_workdir(execution)
                if execution.result is None:
                    self.executions.stop(execution, STOPPED, attempt_open=True)
            elif execution.result is not None:
                self.clean_later(execution)
            elif stale:
                self.executions.stop(execution, STOPPED)
                self.event_publisher.publish_for("stopped", execution)
                self.clean_later(execution)
            else:
                self._died(execution, how)

    def on_attempt_over(self, execution: Execution, why: str, slot: Slot | None) -> None:
        """Stop a waiting or running execution whose attempt is over.  No result is sent."""
        if execution.result is not None or execution.died:
            return
        supervisor_log.warning("the attempt is over (%s), stopping it", why, extra=fields_of(execution))
        if slot is not None:
            slot.stopped_stale = True
            slot.kill()
        elif execution in self.waiting:
            self.waiting.remove(execution)
            self.executions.stop(execution, STOPPED)
            self.event_publisher.publish_for("stopped", execution, text=why)

    def report_failure(self, execution: Execution, outcome: Outcome) -> None:
        """Send an outcome for an execution whose executor cannot report one."""
        execution.ending = execution.ending or outcome.status
        pending = PendingResult(execution.id, execution.attempt, outcome, claim=claim_of(execution))
        self.pending_results.send(execution, pending)

    def _died(self, execution: Execution, how: str) -> None:
        if not execution.step and execution.handouts < MOST_STARTS:
            self.waiting.appendleft(execution)
            return
        execution.died, execution.ending = True, DIED
        execution.end_step(time.time())
        if not execution.step:
            self.self_check.count_failure(f"executors died with {how} before the first step")
        self.report_failure(execution, executor_died(how, execution.step))

    def clean_later(self, execution: Execution) -> None:
        """Clean up in the background after an execution whose executor is gone."""
        # The result sender drops the claim of an execution with a result.
        claim = None if execution.result is not None else claim_of(execution)
        self.chores.add(("clean", execution.id), partial(self.cleanup.clean, execution, claim))
