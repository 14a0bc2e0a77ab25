"""A workflow while it runs: the run, its tasks, and what expressions can read of them.

These are the only values here that change: the decider works on one run, loaded in one transaction, and marks
what it has changed so that the store writes only that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perago.orchestrator.local.definition import Step, WorkflowDefinition, without_loop
from perago.orchestrator.local.taskdef import TaskRules
from perago.protocol.attempt import TERMINAL_STATUSES

RUNNING = "RUNNING"
_SUCCESSFUL = frozenset({"IN_PROGRESS", "SCHEDULED", "COMPLETED", "COMPLETED_WITH_ERRORS", "SKIPPED"})


@dataclass(frozen=True, slots=True)
class Env:
    """What a decision takes from outside: the time, fresh ids and random numbers from 0 up to 1."""

    now: float
    new_id: Callable[[], str]
    random: Callable[[], float]


@dataclass(slots=True)
class Task:
    """One task of a run; every retry is a task of its own."""

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
        """Whether the task has ended."""
        return self.status in TERMINAL_STATUSES

    @property
    def failed(self) -> bool:
        """Whether the task has ended badly."""
        return self.status not in _SUCCESSFUL

    @property
    def step_reference(self) -> str:
        """The reference its step has in the definition."""
        return without_loop(self.reference) if self.iteration else self.reference

    def end(self, status: str, now: float, reason: str | None = None) -> None:
        """Give the task its final status; a reason it already has stays unless there is a new one."""
        self.status = status
        self.ended = now
        self.reason = reason if reason is not None else self.reason
        self.changed = True


@dataclass(slots=True)
class Run:
    """A started workflow: its definition as it was at the start, the rules of its TaskDefs, and its tasks in order."""

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
    """When somebody last had it go on after it had ended."""
    branches: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By repository, the branch that tasks get in place of the one that the workflow names."""
    changed: bool = True

    @property
    def clock_start(self) -> float:
        """Since when the workflow's own time-out counts."""
        return self.retried_at or self.created

    def latest(self, reference: str) -> Task | None:
        """The newest task of that reference."""
        return next((task for task in reversed(self.tasks) if task.reference == reference), None)

    def step(self, task: Task) -> Step:
        """The step a task was made for."""
        return self.definition.step(task.step_reference)

    def rules_for(self, name: str) -> TaskRules:
        """The TaskDef's rules, or Conductor's defaults where none was registered."""
        return self.rules.get(name) or TaskRules(name)

    def retries_allowed(self, task: Task) -> int:
        """How many retries the step says, or else the TaskDef."""
        own = self.step(task).retry_count
        return self.rules_for(task.name).retry_count if own is None else own

    def scope(self) -> dict[str, Any]:
        """What `${…}` can read, by task reference; a loop's tasks go by their plain reference, newest last."""
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
    """A moment as Conductor tells it."""
    return round((at or 0) * 1000)
