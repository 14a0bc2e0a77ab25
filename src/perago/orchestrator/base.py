"""The orchestrator port: Conductor's task and workflow calls, as the runtime needs them.

The rules every adapter keeps (tests/contract/test_orchestrator*.py hold them):

- A polled task is IN_PROGRESS and its lease runs for the TaskDef's response time-out; `extend_lease` renews it
  and changes nothing else.  A lease that runs out makes the task TIMED_OUT, and the retry is a new task id with
  retry count + 1.
- `complete` says whether the result was *accepted*.  A result for a task that is over is not, and changes nothing.
- Definitions and inputs are plain JSON values, in Conductor's own field names.
- Moments are seconds since 1970; None where it has not come to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from perago.protocol.attempt import Attempt, AttemptSnapshot
from perago.protocol.outcome import Outcome

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Assignment:
    """An attempt and its input, as polled."""

    attempt: Attempt
    input: Json


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task of a workflow; every retry is a task of its own."""

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
    available: float = 0.0
    """When it can be polled, in seconds since the epoch: a retry waits for its TaskDef's delay."""
    retry_limit: int | None = None
    """How many retries its TaskDef, or its step, allows; None where nobody says."""


@dataclass(frozen=True, slots=True)
class WorkflowState:
    """A workflow as it stands; `tasks` come in the order they were scheduled."""

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
    """The workflow definition that it was started with."""

    @property
    def running(self) -> bool:
        """Whether the workflow can still go on."""
        return self.status in {"RUNNING", "PAUSED"}


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
    """A started workflow, for listings."""

    id: str
    name: str
    status: str
    started: float | None
    ended: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a task's log, and when the orchestrator got it."""

    at: float
    text: str


class AttemptReader(Protocol):
    """Who can say whether an attempt is current; `OrchestratorNotFound` where it is not theirs."""

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """What the owner says about the attempt's task now."""


class AttemptReporter(AttemptReader, Protocol):
    """What an attempt asks of whoever gave it out: all that a fence and a result need."""

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        """Send the result and tell whether it was accepted."""


class Orchestrator(AttemptReporter, Protocol):
    """What the runtime asks of an orchestrator."""

    @property
    def address(self) -> str:
        """Where it is, without secrets: what is kept for one orchestrator is not sent to another."""

    def server(self) -> str:
        """What it is, with its version; `OrchestratorError` where what answers is something else."""

    def poll(
        self, task_name: str, *, worker_id: str, count: int, wait_seconds: float
    ) -> Sequence[Assignment]:
        """Take up to `count` tasks; wait up to `wait_seconds` for the first."""

    def waiting(self, task_names: Sequence[str]) -> Sequence[str]:
        """Those for which there may be something to take, by one question for all of them; takes nothing.

        A hint: a name may be there for nothing, and whoever polls goes by it to ask less often, never to ask no more.
        """

    def current(self, attempt: Attempt) -> AttemptSnapshot:
        """What the orchestrator says about the attempt's task now."""

    def complete(self, attempt: Attempt, outcome: Outcome, *, worker_id: str) -> bool:
        """Send the result and tell whether it was accepted."""

    def extend_lease(self, attempt: Attempt, *, worker_id: str) -> None:
        """Renew the task's lease."""

    def may_be_covered(self, attempt: Attempt, *, left_behind: bool) -> bool:
        """Whether a result that was accepted may still be undone, by an update that nobody has heard of since.

        `left_behind` says that another worker had the attempt before, whose updates nobody here knows.
        """

    def log(self, attempt: Attempt, lines: Sequence[str]) -> None:
        """Add lines to the task's log; the record of an execution comes back whole."""

    def task_log(self, task_id: str) -> Sequence[LogLine]:
        """The lines of a task's log, oldest first; none for a task that it does not know."""

    def taskdef(self, name: str) -> Json | None:
        """The registered TaskDef, or None."""

    def register_taskdefs(self, definitions: Sequence[Json]) -> None:
        """Create or update TaskDefs."""

    def register_workflow(self, definition: Json) -> None:
        """Create or update a workflow definition."""

    def workflow_definition(self, name: str, version: int | None = None) -> Json | None:
        """The registered workflow definition, the newest version unless one is asked for, or None.

        It has every field that was registered; the server may add its own, and those it has defaults for.
        """

    def workflow_versions(self) -> Mapping[str, Sequence[int]]:
        """The versions of every registered workflow, oldest first, by name."""

    def start_workflow(self, name: str, *, version: int | None = None, input: Json) -> str:
        """Start a workflow and return its id."""

    def workflow(self, workflow_id: str) -> WorkflowState:
        """The workflow as it stands."""

    def workflows(self, count: int, *, start: int = 0) -> Sequence[WorkflowSummary]:
        """The workflows that were started last, newest first, without the first `start` of them."""

    def retry_workflow(self, workflow_id: str) -> None:
        """Have a workflow that ended badly go on: its last failed, timed-out or canceled tasks are scheduled again.

        Each is a new task id with retry count + 1, whatever its TaskDef allows, to be polled at once.
        `OrchestratorRefused` for a workflow that is running, or COMPLETED.
        """

    def close(self) -> None:
        """Give connections back."""
