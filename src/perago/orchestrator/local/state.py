"""The state of a workflow: the run, its tasks, and the values that expressions can read.

Only `Run` and `Task` are mutable.  The decider works on one run, loaded in one transaction, and marks what it changes,
so that only the changes are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perago.orchestrator.base import NO_LIMITS, RetryLimits
from perago.orchestrator.local.taskdef import TaskRules
from perago.protocol.attempt import TERMINAL_STATUSES
from perago.workflow.model.definition import ITERATION_MARK, Step, WorkflowDefinition

RUNNING = "RUNNING"
PAUSED = "PAUSED"
_SUCCESSFUL = frozenset({"IN_PROGRESS", "SCHEDULED", "COMPLETED", "COMPLETED_WITH_ERRORS", "SKIPPED"})


@dataclass(frozen=True, slots=True)
class Env:
    """External inputs to a decision: the time, new ids, and random numbers from 0 (inclusive) to 1 (exclusive)."""

    now: float
    new_id: Callable[[], str]
    random: Callable[[], float]
    limits: RetryLimits = NO_LIMITS
    useless: str = ""
    """The id of a task that just failed in a way that every retry would repeat; usually empty."""


@dataclass(slots=True)
class Task:
    """One task of a run.  Every retry is a separate task."""

    id: str
    run_id: str
    reference: str
    name: str
    type: str
    status: str
    seq: int = 0
    retry_count: int = 0
    iteration: int = 0
    input: dict[str, Any] = field(default_factory=dict)
    output: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    executed: bool = False
    retried: bool = False
    scheduled: float = 0
    first_scheduled: float = 0
    available: float = 0
    started: float | None = None
    updated: float = 0
    ended: float | None = None
    worker_id: str | None = None
    poll_count: int = 0
    changed: bool = True

    @property
    def over(self) -> bool:
        """True if the task has ended."""
        return self.status in TERMINAL_STATUSES

    @property
    def failed(self) -> bool:
        """True if the task has ended without success."""
        return self.status not in _SUCCESSFUL

    @property
    def step_reference(self) -> str:
        """The reference of the task's step in the definition."""
        return self.reference.split(ITERATION_MARK)[0] if self.iteration else self.reference

    def end(self, status: str, now: float, reason: str | None = None) -> None:
        """End the task with a final status.  The task keeps its reason unless a new one is passed."""
        self.status = status
        self.ended = now
        self.reason = reason if reason is not None else self.reason
        self.changed = True


@dataclass(slots=True)
class Run:
    """A started workflow: its definition when it started, the rules from its TaskDefs, and its tasks in order."""

    id: str
    definition: WorkflowDefinition
    rules: Mapping[str, TaskRules]
    input: dict[str, Any]
    created: float
    status: str = RUNNING
    output: dict[str, Any] = field(default_factory=dict)
    reason: str | None = None
    ended: float | None = None
    tasks: list[Task] = field(default_factory=list)
    retried_at: float | None = None
    """The last time at which the run was resumed after it had ended."""
    branches: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The branches that tasks use instead of the original ones, keyed by repository and then by original branch."""
    changed: bool = True

    @property
    def clock_start(self) -> float:
        """The time from which the workflow's own timeout is counted."""
        return self.retried_at or self.created

    def latest(self, reference: str) -> Task | None:
        """Return the newest task with this reference, or None."""
        return next((task for task in reversed(self.tasks) if task.reference == reference), None)

    def step(self, task: Task) -> Step:
        """Return the step that a task belongs to."""
        return self.definition.steps[task.step_reference]

    def rules_for(self, name: str) -> TaskRules:
        """Return the TaskDef's rules, or Conductor's defaults if none was registered."""
        return self.rules.get(name) or TaskRules(name)

    def retries_allowed(self, task: Task) -> int:
        """Return the number of retries allowed by the step, or else by its TaskDef."""
        own = self.step(task).retry_count
        return self.rules_for(task.name).retry_count if own is None else own

    def scope(self) -> dict[str, Any]:
        """Return the values for `${…}`, by task reference.

        A task in a loop is found under its reference without the iteration, and the newest one wins.
        """
        scope: dict[str, Any] = {"workflow": self._workflow_scope()}
        for task in self.tasks:
            scope[task.step_reference] = _task_scope(task)
        return scope

    def _workflow_scope(self) -> dict[str, Any]:
        return {
            "input": self.input,
            "output": self.output,
            "status": self.status,
            "workflowId": self.id,
            "workflowType": self.definition.name,
            "version": self.definition.version,
            "reasonForIncompletion": self.reason,
            "schemaVersion": 2,
            "variables": self.definition.variables,
        }


def _task_scope(task: Task) -> dict[str, Any]:
    return {
        "input": task.input,
        "output": task.output,
        "taskType": task.type,
        "status": task.status,
        "referenceTaskName": task.reference,
        "retryCount": task.retry_count,
        "pollCount": task.poll_count,
        "taskDefName": task.name,
        "scheduledTime": milliseconds(task.scheduled),
        "startTime": milliseconds(task.started),
        "endTime": milliseconds(task.ended),
        "workflowInstanceId": task.run_id,
        "taskId": task.id,
        "reasonForIncompletion": task.reason,
        "workerId": task.worker_id,
        "iteration": task.iteration,
    }


def milliseconds(at: float | None) -> int:
    """Convert a time to Conductor's milliseconds.  None becomes 0."""
    return round((at or 0) * 1000)
