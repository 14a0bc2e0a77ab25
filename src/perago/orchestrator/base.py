"""The orchestrator port: Conductor's task and workflow calls, as the runtime needs them.

Every adapter follows these rules (tests/contract/test_orchestrator*.py checks them):

- A polled task is IN_PROGRESS, and its lease lasts for the TaskDef's response timeout.  `extend_lease` renews the
  lease and changes nothing else.  If the lease expires, the task becomes TIMED_OUT, and its retry is a new task with a
  new id and retry count + 1.
- `complete` returns whether the result was *accepted*.  A result for a finished task is not accepted, and changes
  nothing.
- Definitions and inputs are plain JSON values with Conductor's own field names.
- Times are seconds since 1970, or None if the event has not happened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any, Protocol

from perago.protocol.attempt import Attempt, AttemptSnapshot
from perago.protocol.outcome import Outcome

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Assignment:
    """An attempt and its input, as returned by a poll."""

    attempt: Attempt
    input: Json


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """Limits on the retries that TaskDefs allow, for a workflow whose author waits for it.

    Only the embedded orchestrator applies them.  By default, there are none.
    """

    longest_delay: float | None = None
    """The longest delay before a retry, in seconds."""
    no_retries: bool = False
    stop_if_useless: bool = False
    """True if a failure that every retry would repeat (`Outcome.final`) is not retried."""


NO_LIMITS = RetryLimits()


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task of a workflow.  Every retry is a separate task."""

    reference: str
    task_name: str
    task_type: str
    task_id: str
    status: str
    retry_count: int
    iteration: int
    seq: int
    input: Json = field(default_factory=dict)
    output: Json = field(default_factory=dict)
    reason: str | None = None
    scheduled: float | None = None
    started: float | None = None
    ended: float | None = None
    worker: str | None = None
    updated: float | None = None
    """The time of the last poll or lease extension."""
    response_seconds: float = 0.0
    """The lease: how long after `updated` a task in progress times out; 0 if it never does."""
    available: float = 0.0
    """The earliest time at which the task can be polled.  A retry has to wait for the TaskDef's retry delay."""
    retry_limit: int | None = None
    """The number of retries allowed by the step, or else by its TaskDef; None if neither sets a limit."""


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """The current state of a workflow.  `tasks` are in the order in which they were scheduled."""

    id: str
    status: str
    reason: str | None
    output: Json
    tasks: Sequence[TaskState]
    name: str = ""
    input: Json = field(default_factory=dict)
    started: float | None = None
    ended: float | None = None
    definition: Json = field(default_factory=dict)
    """The workflow definition as it was when the workflow started."""

    @property
    def running(self) -> bool:
        """True if the workflow can still make progress."""
        return self.status in {"RUNNING", "PAUSED"}


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """A started workflow, as shown in a list of workflows."""

    id: str
    name: str
    status: str
    started: float | None
    ended: float | None = None
    reason: str | None = None
    input: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line in a task's log, and the time at which the orchestrator received it."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression, and the zone on whose clock it is read."""

    expression: str
    zone: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """A workflow that the orchestrator starts again and again, always with the same input."""

    name: str
    workflow: str
    crons: Sequence[Cron]
    input: Json
    version: int | None = None
    """The workflow's version; None for the newest one at each start."""
    paused: bool = False
    begins: float | None = None
    ends: float | None = None


class AttemptReader(Protocol):
    """Reads attempts for the attempt fence.  Raises `OrchestratorNotFound` if another orchestrator owns the attempt."""

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """Return the current state of the attempt's task."""

    def workflow(self, workflow_id: str) -> WorkflowState:
        """Return the current state of the workflow."""


class AttemptReporter(AttemptReader, Protocol):
    """The calls that an attempt makes to its orchestrator, to check the attempt fence and to send its result."""

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        """Send the result and return whether it was accepted."""


class Orchestrator(AttemptReporter, Protocol):
    """All calls that the runtime makes to an orchestrator."""

    @property
    def address(self) -> str:
        """The orchestrator's address, without secrets.  State saved for one address is never sent to another."""

    def server(self) -> str:
        """Return the server's name and version.  Raises `OrchestratorError` if another kind of server responds."""

    def poll(
        self, task_name: str, *, worker_id: str, count: int, wait_seconds: float
    ) -> Sequence[Assignment]:
        """Take up to `count` tasks, waiting up to `wait_seconds` for the first one."""

    def queued_task_names(self, task_names: Sequence[str]) -> Sequence[str]:
        """Return the subset of these names that may have tasks to poll.  This is a single call and takes no task.

        The result is only a hint: callers may poll the other names less often, but must still poll every name.
        """

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """Return the current state of the attempt's task."""

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        """Send the result and return whether it was accepted."""

    def extend_lease(self, attempt: Attempt, *, worker_id: str) -> None:
        """Renew the task's lease."""

    def may_be_overwritten(self, attempt: Attempt, *, left_behind: bool) -> bool:
        """Return whether an earlier update that was never acknowledged could still overwrite an accepted result.

        `left_behind` means that another worker had the attempt before, and that its updates are unknown to this worker.
        """

    def log(self, attempt: Attempt, lines: Sequence[str]) -> None:
        """Append lines to the task's log.  An execution's record is never truncated."""

    def task_log(self, task_id: str) -> Sequence[LogLine]:
        """Return the lines in a task's log, oldest first.  Returns no lines if the task is unknown."""

    def taskdef(self, name: str) -> Json | None:
        """Return the registered TaskDef, or None."""

    def register_taskdefs(self, definitions: Sequence[Json]) -> None:
        """Create or update TaskDefs."""

    def register_workflow(self, definition: Json) -> None:
        """Create or update a workflow definition."""

    def workflow_definition(self, name: str, version: int | None = None) -> Json | None:
        """Return the registered workflow definition (by default the newest version), or None.

        It contains every field that was registered, and the server may add fields and defaults.
        """

    def workflow_versions(self) -> Mapping[str, Sequence[int]]:
        """Return a mapping from the name of every registered workflow to its versions, oldest first."""

    def start_workflow(self, name: str, *, version: int | None = None, input: Json) -> str:
        """Start a workflow and return its id."""

    def workflow(self, workflow_id: str) -> WorkflowState:
        """Return the current state of the workflow."""

    def workflows(self, count: int, *, start: int = 0) -> Sequence[WorkflowSummary]:
        """Return up to `count` workflows, newest first, skipping the first `start`."""

    def retry_workflow(self, workflow_id: str) -> None:
        """Resume a failed workflow by scheduling its last failed, timed-out or canceled tasks again.

        Each becomes a new task with a new id and retry count + 1, even if its TaskDef allows no more retries, and can
        be polled at once.  Raises `OrchestratorRefused` if the workflow is running or COMPLETED.
        """

    def pause_workflow(self, workflow_id: str) -> None:
        """Schedule no more steps of a running workflow.  Tasks that are scheduled or in progress continue.

        While a workflow is PAUSED, none of its timeouts apply.  Raises `OrchestratorRefused` if it is not RUNNING.
        """

    def resume_workflow(self, workflow_id: str) -> None:
        """Continue a paused workflow.  Raises `OrchestratorRefused` if it is not PAUSED."""

    def terminate_workflow(self, workflow_id: str, reason: str) -> None:
        """End a workflow with the status TERMINATED; its unfinished tasks become CANCELED.

        Raises `OrchestratorRefused` if it has ended already.
        """

    def close(self) -> None:
        """Close the connections."""


class Scheduler(Protocol):
    """The schedules of an orchestrator that starts workflows by the clock.  The embedded one does not."""

    @property
    def address(self) -> str:
        """The orchestrator's address, without secrets."""

    def schedules(self) -> Sequence[Schedule]:
        """Return all schedules, sorted by name."""

    def save_schedule(self, schedule: Schedule) -> None:
        """Create the schedule, or replace the one with its name.

        The orchestrator checks neither the cron expression nor the workflow.
        """

    def pause_schedule(self, name: str) -> None:
        """Start nothing more until the schedule is resumed.  Raises `OrchestratorNotFound` if there is none."""

    def resume_schedule(self, name: str) -> None:
        """Continue a paused schedule.  Raises `OrchestratorNotFound` if there is none, or if it is not paused."""

    def remove_schedule(self, name: str) -> None:
        """Remove the schedule, if there is one.  Workflows that it has started continue."""

    def next_times(self, expression: str, zone: tzinfo, after: float) -> Sequence[float] | None:
        """Return the next few times (at most 5) of a cron expression, or None if it is not one."""

    def close(self) -> None:
        """Close the connections."""
